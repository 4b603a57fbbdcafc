"""Batches of a stream that writes exactly once, over drivers and tasks that die at any step."""

import pytest

pa = pytest.importorskip("pyarrow")

from kctl.errors import KctlError, TimedOutError, UsageError  # noqa: E402
from kctl.export.spark import sink_tasks  # noqa: E402
from kctl.export.spark.batch_progress import (  # noqa: E402
    BatchProgress,
    BatchState,
    TaskTransaction,
    parse_progress,
)
from kctl.export.spark.sink_options import SinkOptions  # noqa: E402
from kctl.export.spark.sink_tasks import (  # noqa: E402
    Job,
    TransactionLostError,
    abort_job,
    commit_job,
    write_in_transaction,
    write_rows,
)
from kctl.testing.kafka_broker import KafkaBroker  # noqa: E402


@pytest.fixture(scope="module")
def broker():
    with KafkaBroker() as running:
        yield running


@pytest.fixture
def topic(broker, request):
    name = request.node.name.translate({ord("["): "-", ord("]"): None})
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def options(broker, topic):
    return SinkOptions(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic,
         "kctl.exactly.once": "true"}
    )  # fmt: skip


def rows(*values):
    return [pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})]


def written(options, job, *values_of_tasks):
    found = [
        write_in_transaction(options, rows(value), job, task)
        for task, value in enumerate(values_of_tasks)
    ]
    return [it for it in found if it is not None]


def values(broker, topic):
    return sorted(it.value.decode() for it in broker.records(topic))


class DiedError(Exception):
    """The driver was killed."""


def dies_after(monkeypatch, name, calls):
    """Make the driver die before its call number `calls` of a function of `sink_tasks`."""
    real, left = getattr(sink_tasks, name), [calls]

    def mortal(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise DiedError
        return real(*arguments)

    monkeypatch.setattr(sink_tasks, name, mortal)


def test_a_batch_appears_at_once_and_only_once(broker, topic, options):
    job = Job(topic, 0)
    transactions = written(options, job, "ab", "c")
    assert values(broker, topic) == []
    commit_job(options, job, transactions)
    assert values(broker, topic) == ["ab", "c"]
    # The query is started again, and its last batch runs again.
    assert written(options, job, "ab", "c") == []
    commit_job(options, job, [])
    following = Job(topic, 1)
    commit_job(options, following, written(options, following, "d"))
    assert values(broker, topic) == ["ab", "c", "d"]
    with pytest.raises(KctlError, match="checkpoint is older"):
        written(options, job, "ab")


# Of a batch of three tasks: preparing, three commits (a check of each comes before), the end.
@pytest.mark.parametrize(
    ("function", "calls"),
    [("_write_progress", 0), ("_commit_all", 0), ("_resumed", 3), ("_resumed", 4),
     ("_resumed", 5), ("_write_progress", 1)],
)  # fmt: skip
def test_a_driver_that_dies_while_it_commits(broker, topic, options, monkeypatch, function, calls):
    job = Job(topic, 0)
    first = written(options, job, "a", "b", "c")
    with monkeypatch.context() as patched:
        dies_after(patched, function, calls)
        with pytest.raises(DiedError):
            commit_job(options, job, first)
    commit_job(options, job, written(options, job, "a", "b", "c"))
    assert values(broker, topic) == ["a", "b", "c"]


def test_a_batch_that_was_aborted_after_all_is_written_again(broker, topic, monkeypatch):
    """The driver hears nothing of the commit of its progress, aborts, and the commit is made."""
    slow = SinkOptions(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic,
         "kctl.exactly.once": "true"}
    )  # fmt: skip
    job = Job(topic, 0)
    attempt = written(slow, job, "a", "b")
    prepared = []

    def unheard(opened, options, name, progress):
        prepared.append((opened, options, name, progress))
        raise TimedOutError("no response")

    with monkeypatch.context() as patched:
        real = sink_tasks._write_progress
        patched.setattr(sink_tasks, "_write_progress", unheard)
        with pytest.raises(TimedOutError):
            commit_job(slow, job, attempt)
    abort_job(slow, job, attempt)
    _, options, name, progress = prepared[0]
    with options.connection.open() as opened:
        opened.run(real(opened.admin, options, name, progress))
    with pytest.raises(TransactionLostError, match="nothing of it is visible"):
        commit_job(slow, job, written(slow, job, "a", "b"))
    commit_job(slow, job, written(slow, job, "a", "b"))
    assert values(broker, topic) == ["a", "b"]


def test_a_job_that_is_committed_in_part_leaves_no_transaction_open(broker, topic, options):
    job = Job(f"{topic}-job")
    attempt = written(options, job, "a", "b")
    with options.connection.open() as opened:
        opened.run(sink_tasks._resumed(opened, options, job, attempt[0]).end(commit=True))
    abort_job(options, job, attempt)
    broker.produce(topic, "later", partition=0)
    broker.produce(topic, "later", partition=1)
    # An open transaction would hide what comes after it.
    assert values(broker, topic).count("later") == 2


def test_a_later_attempt_fences_the_earlier_one(broker, topic, options):
    job = Job(topic, 0)
    zombie = written(options, job, "a", "b")
    attempt = written(options, job, "a", "b")
    with pytest.raises(TransactionLostError, match="nothing of it is visible"):
        commit_job(options, job, zombie)
    commit_job(options, job, attempt)
    assert values(broker, topic) == ["a", "b"]


def test_a_prepared_batch_whose_transactions_are_lost_is_written_again(
    broker, topic, options, monkeypatch
):
    job = Job(topic, 0)
    first = written(options, job, "a", "b")
    with monkeypatch.context() as patched:
        dies_after(patched, "_commit_all", 0)
        with pytest.raises(DiedError):
            commit_job(options, job, first)
    # As if brokers had aborted them: a task whose id is the same, of another group's progress.
    with options.connection.open() as opened:
        for task in (0, 1):
            transaction = sink_tasks._transaction(opened, options, job.transactional_id(task))
            opened.run(transaction.begin())
    assert written(options, job, "a", "b") == []
    with pytest.raises(TransactionLostError, match="run it again"):
        commit_job(options, job, [])
    commit_job(options, job, written(options, job, "a", "b"))
    assert values(broker, topic) == ["a", "b"]


def test_a_batch_that_fails_leaves_nothing(broker, topic, options):
    job = Job(topic, 0)
    abort_job(options, job, written(options, job, "a", "b"))
    broken = [*rows("c"), "not rows"]
    with pytest.raises(AttributeError):
        write_in_transaction(options, broken, job, 2)
    commit_job(options, job, written(options, job, "d"))
    assert values(broker, topic) == ["d"]


def test_a_job_that_is_not_a_stream(broker, topic, options):
    job = Job(topic)
    commit_job(options, job, written(options, job, "a", "b", ""))
    assert values(broker, topic) == ["", "a", "b"]


def test_a_topic_is_created_as_producers_do(broker):
    options = SinkOptions(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "made_by_a_sink"}
    )
    write_rows(options, rows("a"))
    assert values(broker, "made_by_a_sink") == ["a"]


def test_progress_is_read_as_it_was_written():
    progress = BatchProgress().prepared(7, (TaskTransaction(2, 4011, 3), TaskTransaction(0, 1, 0)))
    found = parse_progress(progress.offset, progress.metadata)
    assert found == progress
    assert [it.task for it in found.transactions] == [0, 2]
    assert parse_progress(8, found.committed().metadata) == BatchProgress(7)
    assert found.rolled_back() == BatchProgress(6)
    assert parse_progress(-1, "") == BatchProgress()


def test_illegal_moves_raise():
    prepared = BatchProgress().prepared(0, (TaskTransaction(0, 1, 0),))
    with pytest.raises(KctlError, match="cannot prepare"):
        prepared.prepared(1, ())
    with pytest.raises(KctlError, match="is not committed"):
        prepared.must_write(1)
    with pytest.raises(KctlError, match="cannot commit"):
        BatchProgress(3, BatchState.COMMITTED).committed()
    with pytest.raises(KctlError, match="committed already"):
        BatchProgress(3).prepared(3, ())
    with pytest.raises(KctlError, match="choose another"):
        parse_progress(5, "of a consumer")
    many = tuple(TaskTransaction(task, 10**6 + task, 0) for task in range(400))
    with pytest.raises(UsageError, match="400 tasks"):
        BatchProgress().prepared(0, many)


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({"kafka.bootstrap.servers": ""}, "bootstrap"),
        ({"topik": "x"}, "no option topik"),
        ({"kafka.linger": "1"}, "kafka.linger is not a setting"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id"),
        ({"kafka.partitioner.class": "x"}, "partitioner.class"),
        ({"kctl.exactly.once": "yes"}, "neither true nor false"),
        ({"kctl.exactly.once": "true", "kafka.acks": "1"}, "needs kafka.acks=all"),
        ({"kctl.transactional.id": "x"}, "is for kctl.exactly.once"),
        ({"kafka.batch.size": "x"}, "not a number"),
        ({"path": "/x"}, "take no path"),
        ({"topic": ""}, "topic is empty"),
    ],
)
def test_wrong_options_are_refused(more, refused):
    with pytest.raises(UsageError, match=refused):
        SinkOptions({"kafka.bootstrap.servers": "host:9092", "topic": "t"} | more)


def test_options_of_the_source_have_no_effect():
    options = SinkOptions(
        {"kafka.bootstrap.servers": "host:9092", "includeHeaders": "true", "subscribe": "x",
         "checkpointLocation": "/c", "queryName": "q", "kafka.linger.ms": "5"}
    )  # fmt: skip
    assert options.topic is None
    with pytest.raises(UsageError, match="needs the option topic"):
        SinkOptions({"kafka.bootstrap.servers": "host:9092", "kctl.exactly.once": "true"})
