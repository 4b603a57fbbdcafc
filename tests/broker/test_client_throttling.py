"""The quotas of clients: which one applies, who shares it, and how long a client has to pause."""

from types import SimpleNamespace

import pytest

from kctl.broker.client_quotas import ClientQuotaEntity, changed_quotas, entity_of_path, quotas_in
from kctl.broker.client_throttling import (
    BUCKET_IDLE_MS_MAX,
    BUCKETS_MAX,
    NAME_MAX,
    ClientQuotas,
    QuotaKind,
)
from kctl.broker.request import Request, RequestContext
from kctl.broker.sampled_rate import THROTTLE_MS_MAX
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError
from kctl.store.znodes import DEFAULT_ENTITY, sanitize

RATE = "producer_byte_rate"


def request(user="alice", client_id="app", api=ApiKey.PRODUCE, version=8, **body):
    context = RequestContext("id", "127.0.0.1", "X", principal=f"User:{user}")
    body = SimpleNamespace(**{"acks": 1, "replica_id": -1, **body})
    return Request(api, version, 1, client_id, body, context, 0, print, print)


def quotas(*entities, key=RATE, **options):
    """Quotas of (user, client id, limit), where None leaves a part out."""
    it = ClientQuotas(**options)
    for user, client_id, limit in entities:
        names = (None if name is None else sanitize(name) if name else DEFAULT_ENTITY
                 for name in (user, client_id))  # fmt: skip
        it.change(ClientQuotaEntity(*names), {key: limit})
    return it


def limit_of(it, user, client_id, kind=QuotaKind.PRODUCE):
    share = it._share(kind, request(user, client_id))
    return None if share is None else share.limit


EVERY_LEVEL = [
    ("alice", "app", 1), ("alice", "", 2), ("alice", None, 3), ("", "app", 4), ("", "", 5),
    ("", None, 6), (None, "app", 7), (None, "", 8),
]  # fmt: skip


@pytest.mark.parametrize("first", range(8))
def test_the_most_specific_quota_applies(first):
    it = quotas(*EVERY_LEVEL[first:])
    assert limit_of(it, "alice", "app") == first + 1


def test_quotas_of_others_do_not_apply():
    it = quotas(("alice", "app", 1), ("alice", None, 3), (None, "app", 7))
    assert limit_of(it, "bob", "app") == 7
    assert limit_of(it, "alice", "other") == 3
    assert limit_of(it, "bob", "other") is None
    assert limit_of(it, "bob", None) is None


def test_a_static_default_holds_for_client_ids_without_another_quota():
    it = quotas(("alice", None, 3), produce_default=100.0)
    assert limit_of(it, "alice", "app") == 3
    assert limit_of(it, "bob", "app") == 100
    assert limit_of(it, "bob", "app", QuotaKind.FETCH) is None


def test_a_client_may_be_named_like_the_default():
    it = quotas((None, "<default>", 1), (None, "", 8))
    assert limit_of(it, "alice", "<default>") == 1
    assert limit_of(it, "alice", "other") == 8


@pytest.mark.parametrize(
    ("level", "shared"), [(("alice", None), True), ((None, "app"), False), (("alice", ""), False)]
)
def test_who_shares_a_quota(level, shared):
    it = quotas((*level, 100))
    assert it.answered(request(client_id="app"), 1100, 0, 5) == 1000
    assert bool(it.answered(request(client_id="other"), 1, 0, 5)) is shared


def test_the_percentage_of_time_pauses_for_one_window_at_most():
    it = quotas(("alice", None, 1.0), key="request_percentage")
    assert it.times_requests
    heartbeat = request(api=ApiKey.HEARTBEAT)
    assert it.answered(heartbeat, 10, 50_000_000, 5) == 0
    assert it.answered(heartbeat, 10, 60_000_000, 6) > 0
    assert it.answered(heartbeat, 10, 10**12, 7) == 1000
    exempt = [
        request(api=ApiKey.LEADER_AND_ISR), request(api=ApiKey.FETCH, replica_id=1), request(acks=0)
    ]  # fmt: skip
    assert [it.answered(each, 10, 10**12, 8) for each in exempt] == [0, 0, 0]


def test_a_fetch_that_is_not_answered_with_data_is_not_counted():
    it = quotas((None, "app", 1000), key="consumer_byte_rate")
    fetch = request(api=ApiKey.FETCH)
    assert it.fetch_bytes_max(fetch) == 10_000
    assert it.fetched(fetch, 9_000, 5) == 0
    assert it.fetched(fetch, 2_000, 5) == 1000
    assert it.fetched(fetch, 1_000, 7) == 0


def test_a_strict_mutation_quota_refuses_and_an_old_client_only_pauses():
    it = quotas(("alice", None, 1.0), key="controller_mutation_rate")
    create = request(api=ApiKey.CREATE_TOPICS, version=6)
    strict = it.mutation_quota(create, lambda: 0, strict_since=6)
    strict.record(13)
    assert strict.throttle_ms == 0, "what is refused comes after it"
    with pytest.raises(ApiError):
        strict.record(1)
    assert strict.throttle_ms == 2000
    create.api_version = 5
    permissive = it.mutation_quota(create, lambda: 0, strict_since=6)
    permissive.record(1)
    assert permissive.throttle_ms == 3000


def test_quotas_that_come_and_go_switch_the_throttling():
    it = quotas()
    seen = []
    it.on_switch(seen.append)
    it.change(ClientQuotaEntity("alice", None), {RATE: 1.0})
    it.change(ClientQuotaEntity("bob", None), {RATE: 1.0})
    it.change(ClientQuotaEntity("alice", None), {})
    it.change(ClientQuotaEntity("bob", None), {})
    assert seen == [False, True, False]


def test_very_many_client_ids_hold_a_bounded_number_of_buckets():
    it = quotas((None, "", 1000))
    for number in range(3 * BUCKETS_MAX):
        it.answered(request(client_id=f"c{number}"), 1, 0, number)
    assert len(it._buckets[QuotaKind.PRODUCE]) == BUCKETS_MAX
    for number in range(BUCKETS_MAX):
        it.answered(request(client_id=f"d{number}"), 1, 0, 200_000 + BUCKET_IDLE_MS_MAX)
    it.answered(request(client_id="last"), 1, 0, 300_000 + 2 * BUCKET_IDLE_MS_MAX)
    assert len(it._buckets[QuotaKind.PRODUCE]) < BUCKETS_MAX


def test_a_client_keeps_what_it_owes_while_others_come():
    it = quotas((None, "", 1000))
    it.answered(request(client_id="greedy"), 10**9, 0, 0)
    for number in range(2 * BUCKETS_MAX):
        it.answered(request(client_id=f"c{number}"), 1, 0, 1 + number // 1000)
        if number % 5000 == 0:
            assert it.answered(request(client_id="greedy"), 1, 0, 1 + number // 1000) > 100_000


@pytest.mark.parametrize(
    ("limit", "pause_ms"), [(0, THROTTLE_MS_MAX), (-5, 0), (1e18, 0), (1e-9, THROTTLE_MS_MAX)]
)
def test_odd_limits(limit, pause_ms):
    it = quotas((None, "", limit))
    assert it.answered(request(), 1000, 0, 0) == pause_ms


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("key", [RATE, "request_percentage"])
def test_numbers_that_are_not_finite_are_refused(key, value):
    with pytest.raises(ApiError):
        changed_quotas({}, [(key, value)])


def test_what_other_tools_wrote_does_no_harm():
    assert quotas_in({RATE: "junk", "request_percentage": "nan", "consumer_byte_rate": "5"}) == {
        "consumer_byte_rate": 5.0
    }
    assert entity_of_path("users", "u/clients/c") == ("u", "c")
    assert entity_of_path("users", "u") == ("u", None)
    assert entity_of_path("clients", "c") == (None, "c")


def seconds_of_bytes(it, count, *, seconds, request_bytes, bytes_per_s):
    """Play a client that always has more, and pauses as long as it has to; return its bytes."""
    now_ms = total = 0
    while (now_ms := now_ms + request_bytes * 1000 / bytes_per_s) < seconds * 1000:
        pause_ms = count(request_bytes, int(now_ms))
        total += request_bytes
        now_ms += pause_ms
        assert it.answered(request(client_id="other"), 10**9, 0, int(now_ms)) == 0
    return total


@pytest.mark.parametrize("speed", [1.2, 2, 10, 100])
def test_a_producer_gets_its_rate_over_all_windows(speed):
    """From the start on: three times eleven windows, the first with a burst, as in 2.7.2."""
    rate = 1_000_000
    it = quotas((None, "app", rate))
    total = seconds_of_bytes(
        it, lambda size, now_ms: it.answered(request(), size, 0, now_ms),
        seconds=33, request_bytes=16_384, bytes_per_s=rate * speed,
    )  # fmt: skip
    assert 0.98 <= total / (33 * rate) <= 1.02


@pytest.mark.parametrize("speed", [1.2, 2, 10, 100])
def test_a_consumer_gets_its_rate_over_all_windows(speed):
    rate = 1_000_000
    it = quotas((None, "app", rate), key="consumer_byte_rate")
    fetch = request(api=ApiKey.FETCH)
    delivered = now_ms = 0
    while (now_ms := now_ms + 16_384 * 1000 / (rate * speed)) < 33_000:
        pause_ms = it.fetched(fetch, 16_384, int(now_ms))
        delivered += 0 if pause_ms else 16_384
        now_ms += pause_ms
    assert 0.98 <= delivered / (33 * rate) <= 1.02


def test_usage_has_the_pauses_of_each_client_with_a_quota():
    it = quotas((None, "app", 100), ("alice", None, 1000))
    for _ in range(2):
        it.answered(request("alice"), 10_500, 0, 1_000)
    it.answered(request("bob", "app"), 10, 0, 1_000)
    used = {usage.share: usage for usage in it.usage(1_500)}

    alice, bob = used["alice", "", 1000], used["", "app", 100]
    assert (alice.kind, alice.used, bob.used) == (
        QuotaKind.PRODUCE,
        2_000,
        pytest.approx(10 / 10.5),
    )
    assert (alice.throttled, alice.throttle_ms, alice.paused_ms) == (2, 5_750, 10_500)
    assert (bob.throttled, bob.throttle_ms, bob.paused_ms) == (0, 0, 0)
    it.change(ClientQuotaEntity(sanitize("alice"), None), {})
    assert [each and each.share.client_id for each in it.usage(1_500)] == [None, "app"]


def test_clients_with_very_long_names_have_buckets_of_their_own_and_short_keys():
    """The names of 10,000 buckets could take 1.3 GB."""
    longest = "\N{GRINNING FACE}" * 8_000
    owner, other, exact = longest + "a", longest + "b", "x" * NAME_MAX
    it = quotas((None, "", 1000), (None, owner, 100))
    assert (limit_of(it, "alice", owner), limit_of(it, "alice", other)) == (100, 1000)
    for client_id in (owner, other, other, exact):
        it.answered(request(client_id=client_id), 10_000, 0, 1_000)
    used = list(it.usage(1_000))
    assert [(each.share.limit, each.used, each.throttled) for each in used] == [
        (100, 1_000, 1),
        (1000, 2_000, 1),
        (1000, 1_000, 0),
    ]
    names = [each.share.client_id for each in used]
    assert names[2] == exact
    assert all(len(name) <= NAME_MAX for name in names)
    it.change(ClientQuotaEntity(None, sanitize(owner)), {})
    assert limit_of(it, "alice", owner) == 1000
