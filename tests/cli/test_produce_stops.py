"""kctl produce and kctl import while the broker dies or refuses: counts, the line to resume at, the
exit status."""

import re

import pytest

from kctl.client.producer import Producer
from kctl.protocol.api_keys import ApiKey
from kctl.testing.kafka_broker import KafkaBroker

# The time limit of a producer whose broker is dead.
LIMIT_MS = 300


@pytest.fixture
def broker():
    with KafkaBroker(topics=["orders:1", "wide:3"]) as running:
        yield running


@pytest.fixture
def produce(kctl, broker):
    def run(topic, path, *words):
        return kctl("produce", topic, "-f", path, "-b", broker.bootstrap_servers, *words)

    return run


@pytest.fixture
def dying(broker, monkeypatch):
    """Let the broker die after `count` chunks of the input are acknowledged.

    Until then the producer has the time limit of the command.
    """

    def arrange(count, *, handled=False, error=None):
        chunks = iter(range(count, -1, -1))
        send = Producer.send

        async def send_or_die(self, records):
            if next(chunks, 0) == 0:
                self._timeout_ms = LIMIT_MS
                if error is None:
                    broker.inject_disconnect(ApiKey.PRODUCE, times=None, handled=handled)
                else:
                    broker.inject_error(ApiKey.PRODUCE, error, times=None)
            return await send(self, records)

        monkeypatch.setattr(Producer, "send", send_or_die)

    return arrange


def lines_of(tmp_path, count, size):
    path = tmp_path / "lines"
    path.write_text("".join(f"{number} {'x' * size}\n" for number in range(1, count + 1)))
    return path


def numbers(broker, topic):
    return [int(it.value.split()[0]) for it in broker.records(topic)]


@pytest.mark.parametrize(("count", "size"), [(40_000, 50), (20, 400_000)])
def test_a_run_stops_and_its_resumption_completes_it(
    broker, produce, dying, tmp_path, monkeypatch, count, size
):
    path = lines_of(tmp_path, count, size)
    dying(1)
    ran = produce("orders", path)
    assert ran.status == 3
    stopped = int(re.match(r"error: stopped at line (\d+): ", ran.err)[1])
    written = int(
        re.search(r"^(\d+) records written to orders \(acknowledged\)$", ran.err, re.MULTILINE)[1]
    )
    assert 0 < written == stopped - 1 == len(broker.records("orders"))
    assert re.search(r"^\d+ records? unknown: ", ran.err, re.MULTILINE)
    assert f"hint: --from-line {stopped} continues there." in ran.err
    # One failure ends the run: it does not try every chunk of the input for the whole timeout.
    assert len(ran.err.splitlines()) == 4
    broker.clear_faults()
    monkeypatch.undo()
    ran = produce("orders", path, "--from-line", stopped)
    assert (ran.status, ran.err) == (0, f"{count - written} records written to orders\n")
    assert numbers(broker, "orders") == list(range(1, count + 1))


def test_records_whose_acknowledgement_was_lost_are_unknown(broker, produce, dying, tmp_path):
    path = lines_of(tmp_path, 10, 10)
    dying(0, handled=True)
    ran = produce("orders", path)
    assert ran.status == 3
    assert "0 records written to orders (acknowledged)\n10 records unknown: " in ran.err
    assert "It sends again: 10 unknown records" in ran.err
    # They are there, once: retries of an idempotent producer write nothing twice.
    assert numbers(broker, "orders") == list(range(1, 11))


def test_later_lines_that_are_written_already_are_counted(kctl, broker, tmp_path):
    """The leader of one partition accepts records, that of another does not."""
    path = tmp_path / "lines"
    path.write_text('{"value": "1", "partition": 0}\n\n{"value": "2", "partition": 7}\n')
    ran = kctl("produce", "wide", "-i", "ndjson", "-f", path, "-b", broker.bootstrap_servers)
    assert ran.status == 1
    # Blank lines have numbers, too.
    assert ran.err.startswith("error: line 3: record for wide-7: ")


def test_an_error_that_no_record_can_avoid_ends_the_run(broker, produce, tmp_path):
    path = lines_of(tmp_path, 20, 400_000)
    broker.inject_error(ApiKey.PRODUCE, "TOPIC_AUTHORIZATION_FAILED", times=None)
    ran = produce("orders", path)
    assert ran.status == 1
    assert ran.err.startswith("error: stopped at line 1: ")
    assert broker.request_count(ApiKey.PRODUCE) == 1


def test_errors_of_a_partition_that_persist_are_a_timeout(produce, dying, tmp_path):
    dying(0, error="NOT_ENOUGH_REPLICAS")
    ran = produce("orders", lines_of(tmp_path, 3, 10))
    assert ran.status == 3
    assert "3 records unknown" in ran.err


def test_rejected_records_do_not_end_the_run_and_the_silence_is_announced(
    broker, produce, tmp_path
):
    broker.create_topic("small", configs={"max.message.bytes": 1_000_000})
    path = tmp_path / "lines"
    path.write_text("".join(f"{'x' * 1_100_000}\nfits {number}\n" for number in range(12)))
    ran = produce("small", path)
    assert ran.status == 1
    errors = ran.err.splitlines()
    assert errors[0].startswith("error: line 1: record for small-0: ")
    assert errors[9].startswith("error: line 19: ")
    assert errors[10] == "note: further rejected records are counted, and not listed"
    assert errors[-2:] == [
        "12 records written to small",
        "error: 12 of 24 records failed",
    ]
    # The numbers of a rejected batch are free again for an idempotent producer.
    assert [it.value for it in broker.records("small")] == [b"fits %d" % n for n in range(12)]


def test_a_transaction_that_stops_is_to_be_repeated_as_a_whole(
    broker, produce, dying, tmp_path, monkeypatch
):
    path = lines_of(tmp_path, 40_000, 50)
    dying(1)
    ran = produce("orders", path, "--transactional-id", "nightly")
    assert ran.status == 3
    assert "hint: the transaction is not committed: run the command again" in ran.err
    assert "--from-line" not in ran.err
    broker.clear_faults()
    monkeypatch.undo()
    assert produce("orders", path, "--transactional-id", "nightly").status == 0
    assert numbers(broker, "orders") == list(range(1, 40_001))


def test_values_of_the_command_line_have_numbers_too(kctl, broker, dying):
    dying(0)
    ran = kctl("produce", "orders", "a", "b", "-b", broker.bootstrap_servers)
    assert ran.status == 3
    assert ran.err.startswith("error: stopped at value 1: ")
    assert "--from-line" not in ran.err


def test_documents_tell_the_outcome_of_each_record(broker, produce, dying, tmp_path):
    dying(0)
    ran = produce("orders", lines_of(tmp_path, 2, 10), "-o", "json")
    assert [it["status"] for it in ran.documents] == ["unknown", "unknown"]


@pytest.mark.parametrize("words", [["a", "--from-line", "2"], ["--from-line", "0"]])
def test_from_line_is_for_lines(kctl, broker, words):
    assert kctl("produce", "orders", *words, "-b", broker.bootstrap_servers).status == 2
