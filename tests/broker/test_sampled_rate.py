"""The arithmetic of quotas: delays as the classes of Apache Kafka 2.7.2 compute them."""

import random  # noqa: TID251 - seeded
import subprocess
from pathlib import Path

import pytest

from kctl.broker.client_throttling import MutationQuota
from kctl.broker.sampled_rate import THROTTLE_MS_MAX, Pauses, SampledRate, TokenBucket, Windows
from kctl.protocol.error_codes import ApiError
from tests.support import apache_kafka

ORACLE = Path(__file__).parents[1] / "support" / "java" / "QuotaOracle.java"
START_MS = 1_600_000_000_000
# Of clients that are simulated, in bytes per second.
QUOTA = 1_000_000

# Kind, limit, window in ms, windows: (amount, ms since the start, delay that 2.7.2 computes).
GOLDEN = {
    ("rate", 100, 1000, 11): [
        (1000, 0, 0), (1, 0, 10), (500, 400, 4610), (0, 5410, 4600), (0, 10410, 4600),
        (900, 10420, 13590), (0, 12000, 0), (50, 60000, 0), (2000, 60001, 10499),
    ],
    ("simple", 100, 1000, 11): [
        (100, 0, 0), (1, 0, 10), (200, 900, 2010), (0, 3000, 10), (0, 4000, 0),
        (5000, 11500, 41500),
        (0, 12900, 40100),
    ],
    ("bucket", 2, 1000, 11): [
        (22, 0, 0), (1, 0, 500), (1, 400, 600), (0, 1100, 0), (30, 20000, 4000), (0, 22500, 1500),
    ],
}  # fmt: skip


def play(kind, limit, window_ms, count, steps):
    """Return the delay after each (amount, time) of a script."""
    windows = Windows(window_ms, count)
    now = [0]
    meter = TokenBucket() if kind == "bucket" else SampledRate(is_simple=kind == "simple")
    if kind in ("strict", "permissive"):
        meter = MutationQuota(
            TokenBucket(), limit, windows, lambda: now[0], is_strict=kind == "strict"
        )
    delays = []
    for amount, now_ms in steps:
        now[0] = now_ms
        if isinstance(meter, MutationQuota):
            try:
                meter.record(amount)
            except ApiError:
                delays.append(f"refused {meter.throttle_ms}")
            else:
                delays.append(str(meter.throttle_ms))
            continue
        if kind == "bucket":
            meter.take(amount, limit, now_ms, windows)
        else:
            meter.record(amount, now_ms, windows)
        delays.append(str(meter.throttle_ms(limit, now_ms, windows)))
    return delays


@pytest.mark.parametrize("script", GOLDEN)
def test_delays_are_those_of_apache_kafka(script):
    steps = [(amount, START_MS + at_ms) for amount, at_ms, _ in GOLDEN[script]]
    assert play(*script, steps) == [str(delay) for _, _, delay in GOLDEN[script]]


def test_what_is_taken_back_does_not_count():
    rate, windows = SampledRate(), Windows()
    rate.record(5_000, 0, windows)
    rate.record(-5_000, 10, windows)
    assert rate.per_second(10, windows) == 0


@pytest.mark.parametrize("meter", [SampledRate, TokenBucket])
@pytest.mark.parametrize(
    ("limit", "delay"), [(0, THROTTLE_MS_MAX), (-1, 0), (1e-300, THROTTLE_MS_MAX), (1e308, 0)]
)
def test_odd_limits_have_bounded_delays(meter, limit, delay):
    it, windows = meter(), Windows()
    add = it.record if meter is SampledRate else lambda n, *at: it.take(n, limit, *at)
    add(10, 5, windows)
    assert it.throttle_ms(limit, 5, windows) == delay


def test_a_rate_holds_one_sample_per_window():
    rate, windows = SampledRate(), Windows(1000, 5)
    for now_ms in range(0, 100_000, 100):
        rate.record(1, now_ms, windows)
    assert len(rate._samples) == 5
    assert rate.per_second(99_900, windows) == pytest.approx(10, rel=0.05)


def saturating_client(seed, seconds, *, takes_back):
    """Simulate a client that asks again as soon as its pause is over, a few milliseconds late.

    Return its steps (amount, time), the delay after each, and (time, amount) of what it got. One
    that takes back is a consumer: a response that exceeds the quota is empty and does not count.
    """
    chance = random.Random(seed)
    rate, windows, amount = SampledRate(), Windows(), QUOTA / 20
    now_ms, steps, delays, got = START_MS, [], [], []
    while now_ms < START_MS + seconds * 1000:
        rate.record(amount, now_ms, windows)
        wait_ms = rate.throttle_ms(QUOTA, now_ms, windows)
        steps.append((amount, now_ms))
        delays.append(str(wait_ms))
        if wait_ms and takes_back:
            rate.record(-amount, now_ms, windows)
            steps.append((-amount, now_ms))
            delays.append(str(rate.throttle_ms(QUOTA, now_ms, windows)))
        else:
            got.append((now_ms, amount))
        now_ms += wait_ms + chance.randrange(1, 5)
    return steps, delays, got


def share_of_quota(got, begin_s, seconds):
    begin_ms = START_MS + begin_s * 1000
    within = sum(n for at_ms, n in got if begin_ms <= at_ms < begin_ms + seconds * 1000)
    return within / seconds / QUOTA


@pytest.mark.parametrize("takes_back", [False, True], ids=["producer", "consumer"])
def test_a_client_gets_its_quota_in_the_long_run_and_bursts_in_a_short_one(takes_back):
    """A rate looks back ten to eleven windows, and up to a whole one more while samples are
    missing: what a client gets in half a minute depends on where that begins."""
    _, _, got = saturating_client(19, 300, takes_back=takes_back)
    assert share_of_quota(got, 44, 253) == pytest.approx(1, abs=0.015)
    short = [share_of_quota(got, begin, 30) for begin in range(44, 264, 7)]
    assert max(short) - min(short) > 0.04


def random_scripts(seed, steps):
    """Yield (kind, limit, window, count, steps) with idle times, bursts and clocks at rest."""
    chance = random.Random(seed)
    for number in range(20):
        kind = ("rate", "simple", "bucket", "strict", "permissive")[number % 5]
        limit = chance.choice([0.5, 1, 7.25, 100, 10_000, 1_048_576])
        window_ms, count = chance.choice([(1000, 11), (1000, 11), (2000, 5), (1000, 2)])
        now_ms, script = START_MS + chance.randrange(10_000), []
        for _ in range(steps // 20):
            now_ms += chance.choice([0, 1, 40, 250, 999, 1000, 1001, 3000, 15_000])
            amount = chance.choice([0, 0.1, 0.5, 1, 2, 5]) * limit * chance.random()
            if kind in ("strict", "permissive"):
                amount = chance.randrange(1, 10)
            script.append((amount, now_ms))
        yield kind, limit, window_ms, count, script


@pytest.mark.kafka
def test_ten_thousand_random_steps_have_the_delays_of_the_real_classes(tmp_path):
    jars = apache_kafka.libs()
    if jars is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    scripts = [*random_scripts(1, 10_000)]
    theirs = delays_of_kafka(jars, scripts)
    ours = [delay for script in scripts for delay in play(*script)]
    assert len(theirs) == len(ours) == 10_000
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.startswith("refused") == its.startswith("refused")
        delays = [int(it.split()[-1]) for it in (mine, its)]
        # Delays of more than an hour are cut.
        assert abs(delays[0] - min(delays[1], THROTTLE_MS_MAX)) <= 1
    refused = [it for it in theirs if it.startswith("refused")]
    assert len(refused) > 300, "the scripts have to exceed their quotas"
    assert sum(it != "0" for it in theirs) > 1_500


@pytest.mark.kafka
@pytest.mark.parametrize("takes_back", [False, True], ids=["producer", "consumer"])
def test_apache_kafka_lets_a_client_have_the_same_bursts(takes_back):
    jars = apache_kafka.libs()
    if jars is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    steps, delays, _ = saturating_client(19, 150, takes_back=takes_back)
    theirs = delays_of_kafka(jars, [("rate", QUOTA, 1000, 11, steps)])
    for mine, its in zip(delays, theirs, strict=True):
        assert abs(int(mine) - int(its)) <= 1


def delays_of_kafka(jars, scripts):
    """Play scripts with Kafka's own classes, and return all delays."""
    lines = []
    for kind, limit, window_ms, count, steps in scripts:
        lines.append(f"new {kind} {limit} {window_ms} {count}")
        lines += [f"{amount!r} {now_ms}" for amount, now_ms in steps]
    command = ["java", *apache_kafka.SMALL_JVM, "-cp", f"{jars}/*", str(ORACLE)]
    answer = subprocess.run(
        command, input="\n".join(lines), text=True, capture_output=True, check=True, timeout=120
    )
    return answer.stdout.splitlines()


def test_pauses_are_averaged_over_the_last_minute_at_most():
    pauses = Pauses()
    assert pauses.average_ms(0) == 0
    pauses.add(100, 0)
    pauses.add(300, 10_000)
    assert (pauses.average_ms(20_000), pauses.until_ms, pauses.count) == (200, 10_300, 2)
    pauses.add(50, 31_000)
    assert pauses.average_ms(31_000) == 150
    # The first sample is over; then the second.
    assert pauses.average_ms(62_000) == 50
    assert pauses.average_ms(200_000) == 0
    assert pauses.count == 3
