"""`read` with a condition returns the rows that Spark's filter alone returns, and reads fewer."""

import pytest
from confluent_kafka import Producer

from kctl.errors import UsageError
from kctl.testing.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
# Other tests make further topics.
BOTH = {"subscribe": "orders,payments"}
TIME = 1_700_000_000_000
CONDITIONS = [
    "partition = 1 and offset > 180 and timestamp > timestamp_millis(1700000000500)",
    "offset between 10 and 12 or (partition = 0 and offset >= 190)",
    "timestamp >= '2023-11-14 22:13:20.550' and value like '%7'",
    "topic = 'payments' or offset in (1, 150)",
    "timestamp > current_timestamp() - interval 1 day",
    "offset < 0",
    "partition = 1 and offset between 20 and 39",
    "topic = 'payments' and not (offset < 5 or offset >= 11)",
    "partition = 0 and (offset < 20 or offset between 20 and 30 or offset in (50, 51))",
    "partition = 0 and offset >= 195 and offset < 1000",
]


@pytest.fixture(scope="module")
def broker():
    """orders-0 and orders-1 hold 200 records each, in small segments; payments-0 holds 20."""
    # A broker deletes records of these times when it has run for five minutes.
    with KafkaBroker(topics=["payments:1"], settings={"log.retention.ms": -1}) as running:
        running.create_topic("orders", partitions=2, configs={"segment.bytes": "1000"})
        fill(running, "orders", 0, 400)
        fill(running, "payments", 0, 20)
        yield running


def fill(broker, topic, first, end):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 20})
    partitions = 2 if topic == "orders" else 1
    for number in range(first, end):
        producer.produce(
            topic, b"%d" % number, partition=number % partitions, timestamp=TIME + 2 * number
        )
        if number % 20 == 19:
            producer.flush()


def rows(frame):
    found = frame.select("topic", "partition", "offset", "value").collect()
    return sorted((it.topic, it.partition, it.offset, bytes(it.value)) for it in found)


@pytest.mark.parametrize("is_live", [True, False])
def test_rows_are_those_of_sparks_filter(spark, broker, is_live):
    from kctl.export.spark import explain, read

    place = broker.bootstrap_servers if is_live else str(broker.log_directory)
    plain = read(spark, place, **BOTH).cache()
    everything = rows(plain)
    for condition in CONDITIONS:
        frame = read(spark, place, where=condition, **BOTH)
        found = rows(frame)
        assert found == rows(plain.where(condition)), condition
        # One DataFrame in several queries.
        assert rows(frame.where("offset % 2 = 0")) == [it for it in found if it[2] % 2 == 0]
        assert explain(spark, place, where=condition, **BOTH).offsets < len(everything)
    plain.unpersist()
    assert len(everything) == 420


@pytest.mark.parametrize("is_live", [True, False])
def test_an_end_by_time_is_taken_where_the_caller_vouches_for_the_order(spark, broker, is_live):
    from kctl.export.spark import explain, read

    place = broker.bootstrap_servers if is_live else str(broker.log_directory)
    condition = f"timestamp < timestamp_millis({TIME + 100})"
    # Of each partition a record has every fourth millisecond, 20 at a time in a batch.
    plan = explain(spark, place, condition, disorder_ms=0, subscribe="orders")
    assert [it.stop for it in plan.partitions] == [25, 25]
    assert str(plan.partitions[0]).endswith(", 175 later ones left out")
    found = rows(read(spark, place, condition, disorder_ms=0, subscribe="orders"))
    assert found == rows(read(spark, place, condition, subscribe="orders"))
    assert len(found) == 50
    text = str(explain(spark, place, condition, subscribe="orders"))
    assert "disorder_ms=N vouches" in text
    assert "no end by time" in text.splitlines()[1]
    with pytest.raises(UsageError, match="negative"):
        read(spark, place, condition, disorder_ms=-1, subscribe="orders")


def test_the_brokers_times_end_a_read_of_files(spark, broker):
    from kctl.export.spark import explain, read

    broker.create_topic("appended", configs={"message.timestamp.type": "LogAppendTime"})
    fill(broker, "appended", 0, 20)
    place = str(broker.log_directory)
    plan = explain(spark, place, "timestamp < '2023-12-31'", subscribe="appended")
    assert (plan.offsets, plan.partitions[0].all_bytes > 0) == (0, True)
    assert read(spark, place, "timestamp < '2023-12-31'", subscribe="appended").count() == 0
    plan = explain(spark, place, "timestamp > '2023-12-31'", subscribe="appended")
    assert plan.offsets == 20


@pytest.mark.parametrize("is_live", [True, False])
def test_spark_filters_only_what_the_ranges_do_not_decide(spark, broker, is_live):
    from kctl.export.spark import read

    place = broker.bootstrap_servers if is_live else str(broker.log_directory)

    def plan(condition):
        frame = read(spark, place, condition, subscribe="orders")
        return frame._jdf.queryExecution().optimizedPlan().toString()

    exact = plan("partition = 1 and offset >= 10 and offset < 30")
    assert "Filter" not in exact
    assert "KctlRows" in exact
    assert "Filter" not in plan("partition = 1 and offset >= 10")
    for condition in (
        "partition = 1 and offset >= 10 and offset < 30 and value like '%7'",
        "partition = 1 and offset in (10, 12)",
        "partition = 1 and offset < 100000",
        "offset >= 100000",
    ):
        assert "Filter" in plan(condition), condition
    with pytest.raises(Exception, match="no_column"):
        read(spark, place, "partition = 7 and no_column = 1", subscribe="orders").count()


def test_an_end_after_that_of_the_log_stays_an_end(spark, broker):
    from kctl.export.spark import read

    broker.create_topic("short")
    fill(broker, "short", 0, 20)
    frame = read(
        spark, broker.bootstrap_servers, "offset > 1 and offset < 30", subscribe="short"
    )  # fmt: skip
    fill(broker, "short", 20, 60)
    assert frame.count() == 28


def test_what_is_read_is_explained(spark, broker):
    from kctl.export.spark import explain

    condition = "partition = 1 and offset >= 190 and value like '%7'"
    plan = explain(spark, str(broker.log_directory), where=condition, subscribe="orders")
    lines = str(plan).splitlines()
    assert lines[0] == "reads 10 of 400 offsets, in 1 of 2 partitions"
    assert lines[1] == "  orders-0: not read"
    assert lines[2].startswith("  orders-1: offsets 190 to 200 of 0 to 200, 1 of ")
    assert lines[3] == "  selects no offsets: value like '%7'"
    assert plan.partitions[1].all_segments > 3
    live = explain(spark, broker.bootstrap_servers, where="topic = 'orders' and offset >= 190")
    assert "  orders-0: offsets 190 to 200 of 0 to 200" in str(live).splitlines()


def test_records_that_come_before_the_first_query_are_in_the_frame(spark, broker):
    from kctl.export.spark import read

    broker.create_topic("growing")
    frame = read(
        spark, broker.bootstrap_servers, where="offset > 1 and timestamp > '2023-01-01'",
        subscribe="growing",
    )  # fmt: skip
    fill(broker, "growing", 0, 20)
    # Spark plans a Python source once for a DataFrame: later queries read the same offsets.
    assert frame.count() == 18


@pytest.mark.parametrize(
    "options", [{"startingOffsets": "earliest"}, {"path": "/data"}, {"kctl.commit.offsets": "true"}]
)
def test_options_that_a_condition_excludes(spark, broker, options):
    from kctl.export.spark import read

    with pytest.raises(UsageError):
        read(spark, broker.bootstrap_servers, where="offset > 1", subscribe="orders", **options)
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        read(spark, broker.bootstrap_servers, where="offset > )", subscribe="orders")
