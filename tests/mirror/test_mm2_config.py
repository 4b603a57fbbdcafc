"""MirrorMaker 2's option file: one flow of it, and what has no effect in kctl."""

import pytest

from kctl.cli.mirror.ends import EndOptions
from kctl.cli.mirror.mm2_options import Mm2Options
from kctl.cli.mirror.topic_options import TopicOptions
from kctl.errors import UsageError
from kctl.mirror.mm2_config import parse_flow

FILE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A->B.enabled": "true",
}


def test_the_defaults_are_those_of_mirrormaker():
    flow = parse_flow(FILE)

    assert (flow.source_alias, flow.target_alias) == ("A", "B")
    assert flow.source == {"bootstrap.servers": "a:9092"}
    assert flow.rename == "A.{topic}"
    assert flow.replication_factor == 2
    assert flow.groups is None
    assert flow.without_effect == []
    names = ["orders", "A.orders", "mm2-offsets.A.internal", "x.replica", "__consumer_offsets"]
    assert [flow.topics(name) for name in names] == [True, True, False, False, False]


def test_a_flows_settings_precede_those_of_all_flows():
    flow = parse_flow(
        FILE
        | {
            "topics": "none",
            "A->B.topics": "ord.*, pay",
            "A->B.topics.exclude": "order-test",
            "sync.group.offsets.enabled": "true",
            "replication.policy.separator": "_",
            "replication.factor": "3",
            "A.consumer.security.protocol": "SASL_SSL",
            "A.security.protocol": "SSL",
        }
    )

    names = ("orders", "order-test", "pay", "payments", "none")
    assert [flow.topics(name) for name in names] == [True, False, True, False, False]
    assert flow.groups is not None
    assert flow.groups("billing")
    assert not flow.groups("connect-sink")
    assert (flow.rename, flow.replication_factor) == ("A_{topic}", 3)
    assert flow.source["security.protocol"] == "SASL_SSL"
    assert flow.without_effect == []


def test_what_has_no_effect_is_named():
    idle = {
        "tasks.max": "4",
        "emit.checkpoints.interval.seconds": "5",
        "B.producer.linger.ms": "5",
        "A->B.sync.topic.acls.enabled": "true",
        "B->A.topics": "x",
        "C.bootstrap.servers": "c:9092",
    }

    assert set(parse_flow(FILE | idle | {"B->A.enabled": "false"}).without_effect) == set(idle)


@pytest.mark.parametrize(
    ("changes", "flow"),
    [
        ({"clusters": "A"}, None),
        ({"A->B.enabled": "false"}, None),
        ({"B->A.enabled": "true"}, None),
        ({}, "B->A"),
        ({"A.bootstrap.servers": None}, None),
        ({"replication.policy.class": "com.example.Policy"}, None),
        ({"topics": "(?<=x)y"}, None),
        ({"replication.factor": "many"}, None),
    ],
)
def test_a_file_without_a_clear_flow_is_refused(changes, flow):
    given = {name: value for name, value in (FILE | changes).items() if value is not None}

    with pytest.raises(UsageError):
        parse_flow(given, flow)


def test_topics_that_came_from_the_target_are_not_copied_back():
    flow = parse_flow(FILE)

    assert [flow.topics(name) for name in ("B.orders", "C.B.orders", "B", "C.B")] == [
        False, False, True, True,
    ]  # fmt: skip


def test_one_of_two_flows_is_chosen():
    flow = parse_flow(FILE | {"B->A.enabled": "true"}, "B->A")

    assert (flow.source_alias, flow.target_alias) == ("B", "A")


def test_settings_are_left_out_beside_a_file(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text("".join(f"{name} = {value}\n" for name, value in FILE.items()))

    flow = Mm2Options(str(path)).flow_of(
        EndOptions(), TopicOptions(exclude_config=["remote.*"]), None
    )

    assert flow.choice.exclude_configs == ("remote.*",)
