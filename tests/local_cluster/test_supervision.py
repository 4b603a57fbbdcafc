"""Supervision of processes that die, are stopped, killed or started again, and their addresses."""

from itertools import product

import pytest

from kctl.configs.broker_config import BrokerConfig
from kctl.errors import UsageError
from kctl.local_cluster.plan import check_own_settings, cluster_defaults, plan_brokers
from kctl.local_cluster.supervision import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    MOVES,
    STEADY_MS,
    Event,
    ProcessState,
    Supervision,
)


def supervised(*events, now_ms=0):
    supervision = Supervision()
    for event in events:
        supervision.handle(event, now_ms)
    return supervision


def test_process_that_dies_waits_and_is_started_again():
    supervision = supervised(Event.START, Event.READY, Event.EXITED)
    assert (supervision.state, supervision.deaths) == (ProcessState.WAITING, 1)
    assert supervision.handle(Event.PAUSE_OVER, 0) is ProcessState.STARTING


def test_pauses_double_up_to_a_limit_and_restart_after_a_steady_run():
    supervision = Supervision()
    supervision.handle(Event.START, 0)
    pauses = []
    for _ in range(10):
        supervision.handle(Event.EXITED, 0)
        pauses.append(supervision.next_pause_ms())
        supervision.handle(Event.PAUSE_OVER, 0)
    assert pauses[:3] == [BACKOFF_MS_MIN, 2 * BACKOFF_MS_MIN, 4 * BACKOFF_MS_MIN]
    assert pauses[-1] == BACKOFF_MS_MAX
    supervision.handle(Event.READY, 1_000)
    supervision.handle(Event.EXITED, 1_000 + STEADY_MS)
    assert supervision.next_pause_ms() == BACKOFF_MS_MIN


@pytest.mark.parametrize("begun", [(Event.START,), (Event.START, Event.READY)])
def test_process_that_is_stopped_stays_down_until_it_is_started(begun):
    supervision = supervised(*begun, Event.STOP, Event.EXITED)
    assert (supervision.state, supervision.deaths) == (ProcessState.STOPPED, 0)
    assert supervision.handle(Event.RESTART, 0) is ProcessState.STARTING


def test_stop_wins_over_a_restart_that_is_under_way():
    supervision = supervised(Event.START, Event.READY, Event.RESTART, Event.STOP, Event.EXITED)
    assert supervision.state is ProcessState.STOPPED


def test_stopped_while_it_waits_it_is_not_started_again():
    supervision = supervised(Event.START, Event.EXITED, Event.STOP)
    assert supervision.state is ProcessState.STOPPED


def test_what_cannot_happen_is_refused_and_changes_nothing():
    for state, event in product(ProcessState, Event):
        if (state, event) not in MOVES:
            supervision = Supervision()
            supervision.state = state
            with pytest.raises(RuntimeError, match=state.value):
                supervision.handle(event, 0)
            assert supervision.state is state


def test_every_command_can_be_given_in_every_state():
    commands = (Event.START, Event.STOP, Event.RESTART)
    assert all((state, event) in MOVES for state, event in product(ProcessState, commands))


def test_brokers_have_directories_ports_and_racks_of_their_own():
    plans = plan_brokers(3, "data", 9092, ["a", "b"])
    assert [(it.broker_id, it.port, it.rack, it.log_directory) for it in plans] == [
        (1, 9092, "a", "data/broker-1/logs"),
        (2, 9093, "b", "data/broker-2/logs"),
        (3, 9094, "a", "data/broker-3/logs"),
    ]
    assert [it.port for it in plan_brokers(2, "data", 0, [])] == [0, 0]
    assert "broker.rack" not in plan_brokers(1, "data", 0, [])[0].settings(1, "z:1")


@pytest.mark.parametrize(
    ("count", "port", "racks"),
    [(0, 0, []), (101, 0, []), (3, 65534, []), (1, 0, ["a", "b"]), (2, 0, ["a", ""])],
)
def test_impossible_clusters_are_refused(count, port, racks):
    with pytest.raises(UsageError):
        plan_brokers(count, "data", port, racks)


def test_settings_that_each_broker_has_for_itself_are_refused_for_all():
    with pytest.raises(UsageError, match=r"log\.dirs cannot be the same"):
        check_own_settings({"num.partitions": "3", "log.dirs": "/x"})


def test_topics_have_as_many_replicas_as_brokers_and_no_more_than_three():
    factors = [cluster_defaults(n)["default.replication.factor"] for n in (1, 2, 3, 5)]
    assert factors == ["1", "2", "3", "3"]
    assert cluster_defaults(2)["transaction.state.log.min.isr"] == "1"


def test_a_whole_cluster_that_stops_waits_less_than_a_second_for_replicas_that_are_gone():
    defaults = cluster_defaults(3)
    retries = BrokerConfig(defaults).controlled_shutdown_max_retries
    assert retries * BrokerConfig(defaults).controlled_shutdown_retry_backoff_ms < 1000
