"""Brokers of Apache Kafka 0.8.2 to 4.1 that fill log directories of their own for forensics.

`python -m tests.support.kafka_versions` fetches the jars of every version. A FilledBroker writes
what that version can write: every codec and message format, compacted topics, transactions,
deleted records, formats that are lowered and raised again, committed offsets. ZooKeeper takes new
topics and changed settings directly, as the admin clients of today refuse the oldest brokers.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import apache_kafka
from tests.support.apache_kafka import ApacheBroker
from tests.support.zookeeper import running_zookeeper
from tests.support.zookeeper_session import zookeeper_session

VERSIONS = ("0.8.2.2", "0.10.2.2", "0.11.0.3", "1.1.1", "2.7.2", "3.9.1", "4.1.0")
# Brokers without ApiVersions, which clients are tested with.
OLD_VERSIONS = ("0.8.2.2", "0.9.0.1")
GROUP_PARTITIONS = 3
RECORDS = 400
CLUSTER_ID = "a2N0bC10ZXN0cy1rcmFmdA"
READY_TIMEOUT_S = 60
# A topic of each kind that the version has, and its settings.
SMALL_SEGMENTS = {"segment.bytes": 16384, "index.interval.bytes": 1024}
COMPACTED = {
    "cleanup.policy": "compact", "segment.bytes": 8192, "min.cleanable.dirty.ratio": "0.01",
    "segment.index.bytes": 100000, "index.interval.bytes": 512,
}  # fmt: skip
COMMON = {
    "num.partitions": 1,
    "log.flush.interval.messages": 1000000,
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4000000,
    "log.retention.check.interval.ms": 500,
    "file.delete.delay.ms": 1,
    "log.segment.delete.delay.ms": 1,
    "offsets.topic.num.partitions": GROUP_PARTITIONS,
    "offsets.topic.segment.bytes": 4096,
    "transaction.state.log.num.partitions": GROUP_PARTITIONS,
    "transaction.state.log.segment.bytes": 4096,
    "controlled.shutdown.enable": "false",
    "zookeeper.session.timeout.ms": 3000,
    "auto.create.topics.enable": "false",
}


def release(version: str) -> tuple[int, ...]:
    """The version as numbers that compare."""
    return tuple(map(int, version.split(".")))


@contextmanager
def filled_broker(
    version: str, directory: Path, topics: list[str] | None = None
) -> Iterator["FilledBroker"]:
    """Run a broker of `version` with `topics`, or one for each thing that the version can do; skip
    the test if it cannot run here."""
    if apache_kafka.libs(version) is None:
        pytest.skip(f"no jars of Apache Kafka {version}: python -m tests.support.kafka_versions")
    (directory / "zookeeper").mkdir()
    with running_zookeeper(directory / "zookeeper") as zookeeper:
        broker = FilledBroker(version, directory, zookeeper.address)
        try:
            broker.start()
            if topics is None:
                create_topics(broker)
            for name in topics or []:
                broker.create(name, {})
            yield broker
        finally:
            broker.close()


class FilledBroker:
    """One broker, the clients that fill it, and the names of its topics."""

    def __init__(self, version: str, directory: Path, zookeeper: str) -> None:
        self.version, self.release = version, release(version)
        self._zookeeper_address = zookeeper
        port = apache_kafka.free_port()
        self._broker = ApacheBroker(
            directory, zookeeper, port=port, settings=self._settings(port), version=version
        )
        self.log_dir = directory / "logs"
        self.is_kraft = self.release >= (4,)
        # librdkafka does not read the metadata of 0.8, and waits long for the versions of 0.9.
        self.is_oldest = self.release < (0, 10)

    @property
    def address(self) -> str:
        return self._broker.address

    def _settings(self, port: int) -> dict[str, object]:
        settings: dict[str, object] = dict(COMMON)
        if self.release < (0, 10):
            settings |= {"port": port, "host.name": "127.0.0.1"}
        if self.release >= (4,):
            # These have a minimum of 1 MiB since 4.1.
            del settings["offsets.topic.segment.bytes"]
            del settings["transaction.state.log.segment.bytes"]
            controller = apache_kafka.free_port()
            settings |= {
                "process.roles": "broker,controller",
                "node.id": 0,
                "controller.quorum.voters": f"0@127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "share.coordinator.state.topic.replication.factor": 1,
                "share.coordinator.state.topic.num.partitions": 2,
                "share.coordinator.state.topic.min.isr": 1,
                "metadata.log.max.record.bytes.between.snapshots": 2000,
            }
        return settings

    def start(self) -> None:
        """Start the broker and wait until it leads every partition."""
        if self.is_kraft and not self.log_dir.exists():
            config = self._broker.write_config()
            apache_kafka.run_tool(
                "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", config,
                version=self.version,
            )  # fmt: skip
        elif not self.is_kraft:
            self._wait_for_expiry()
        self._broker.launch()
        self._wait_for_leaders()

    @property
    def has_given_up(self) -> bool:
        """Whether the broker shut itself down: in a few of 100 runs its log cleaner closes a
        segment that another thread is flushing (ClosedChannelException), and its log directory goes
        offline."""
        return "Shutdown broker because" in self._log_text()

    def stop(self) -> None:
        """Stop it cleanly."""
        self._broker.stop()

    def kill(self) -> None:
        """kill -9."""
        self._broker.kill()

    def close(self) -> None:
        """Stop it at once, if it runs."""
        if self._broker.process is not None and self._broker.process.poll() is None:
            self._broker.kill()

    def client_settings(self, **more: object) -> dict[str, object]:
        """Settings of librdkafka."""
        return {"bootstrap.servers": self.address, "log_level": 2} | more

    def old_client_settings(self, **more: object) -> dict[str, object]:
        """Settings of kafka-python."""
        return {"bootstrap_servers": self.address, "api_version": (0, 8, 2)} | more

    def codecs(self) -> list[str]:
        """The codecs that the version knows."""
        codecs = ["none", "gzip", "snappy"]
        if self.release >= (0, 9):
            codecs.append("lz4")
        return codecs + (["zstd"] if self.release >= (2, 1) else [])

    def create(self, name: str, config: dict[str, object]) -> None:
        """Create a topic of one partition and wait for its leader."""
        texts = {key: str(value) for key, value in config.items()}
        if self.is_kraft:
            # The plain setting has a minimum of 1 MiB since 4.1.
            if "segment.bytes" in texts:
                texts["internal.segment.bytes"] = texts.pop("segment.bytes")
            from confluent_kafka.admin import NewTopic

            topic = NewTopic(name, 1, 1, config=texts)
            admin = self._admin()
            admin.create_topics([topic])[name].result(READY_TIMEOUT_S)
        else:
            with zookeeper_session(self._zookeeper_address) as client:
                _put(client, f"/config/topics/{name}", {"version": 1, "config": texts})
                partitions = {"version": 1, "partitions": {"0": [0]}}
                _put(client, f"/brokers/topics/{name}", partitions)
        self._wait_for_leaders(name)

    def change_settings(self, name: str, config: dict[str, object]) -> None:
        """Change a topic's settings through ZooKeeper and wait until the broker has them."""
        line = f"Processing override for entityPath: topics/{name} "
        before = self._log_text().count(line)
        with zookeeper_session(self._zookeeper_address) as client:
            texts = {key: str(value) for key, value in config.items()}
            _put(client, f"/config/topics/{name}", {"version": 1, "config": texts})
            notice = {"version": 2, "entity_path": f"topics/{name}"}
            client.create(
                "/config/changes/config_change_", json.dumps(notice).encode(), sequence=True
            )
        wait_until(lambda: self._log_text().count(line) > before)

    def produce(
        self, topic: str, count: int = RECORDS, *, keys: int = 20, base: int = 0, **settings: object
    ) -> None:
        """Produce records of about 80 bytes in batches of up to 25, and wait until they are in."""
        if self.is_oldest:
            self._produce_oldest(topic, count, keys, base, **settings)
            return
        from confluent_kafka import Producer

        named = {key.replace("_", "."): value for key, value in settings.items()}
        producer = Producer(
            self.client_settings(**{"batch.num.messages": 25, "linger.ms": 5}, **named)
        )
        send(producer, topic, count, keys=keys, base=base)
        if producer.flush(READY_TIMEOUT_S):
            raise RuntimeError(f"{topic}: records were not acknowledged")

    def _produce_oldest(
        self, topic: str, count: int, keys: int, base: int, compression_codec: str = "none"
    ) -> None:
        from kafka import KafkaProducer

        codec = None if compression_codec == "none" else compression_codec
        producer = KafkaProducer(
            **self.old_client_settings(batch_size=1500, compression_type=codec, linger_ms=2)
        )
        futures = [
            producer.send(topic, value=value, key=key, partition=0)
            for key, value in records(count, keys=keys, base=base)
        ]
        producer.flush(READY_TIMEOUT_S)
        for future in futures:
            future.get(READY_TIMEOUT_S)
        producer.close()

    def run_transactions(self, topic: str) -> None:
        """Commit and abort transactions of three producers that overlap, some without records."""
        from confluent_kafka import Producer

        producers = []
        for number in range(3):
            settings = {"transactional.id": f"id-{number}", "batch.num.messages": 10}
            producers.append(Producer(self.client_settings(**settings)))
            producers[-1].init_transactions(READY_TIMEOUT_S)
        for round_number in range(4):
            for number, producer in enumerate(producers):
                producer.begin_transaction()
                send(producer, topic, 10 + 10 * number, keys=8, base=round_number)
                producer.flush(READY_TIMEOUT_S)
            for number, producer in enumerate(producers):
                if (round_number + number) % 3:
                    producer.commit_transaction(READY_TIMEOUT_S)
                else:
                    producer.abort_transaction(READY_TIMEOUT_S)

    def commit_offsets(self, topic: str, groups: int = 4) -> None:
        """Commit offsets of some groups, several times each."""
        if self.is_oldest:
            self._commit_oldest(topic, groups)
            return
        from confluent_kafka import Consumer, TopicPartition

        for number in range(groups):
            settings = {"group.id": f"group-{number}", "enable.auto.commit": False}
            consumer = Consumer(self.client_settings(**settings))
            for offset in range(1, 20):
                partition = TopicPartition(topic, 0, offset)
                consumer.commit(offsets=[partition], asynchronous=False)
            consumer.close()

    def _commit_oldest(self, topic: str, groups: int) -> None:
        from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

        for number in range(groups):
            consumer = KafkaConsumer(
                **self.old_client_settings(group_id=f"group-{number}", enable_auto_commit=False)
            )
            consumer.assign([TopicPartition(topic, 0)])
            for offset in range(1, 20):
                consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})
            consumer.close()

    def join_group(self, topic: str, group: str, **settings: object) -> None:
        """Join a group, read a record and leave."""
        from confluent_kafka import Consumer

        named = {key.replace("_", "."): value for key, value in settings.items()}
        consumer = Consumer(self.client_settings(
            **{"group.id": group, "auto.offset.reset": "earliest"}, **named
        ))  # fmt: skip
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.2) is not None)
        consumer.close()

    def delete_records(self, topic: str, offset: int) -> None:
        """Delete what is below `offset`."""
        from confluent_kafka import TopicPartition

        admin = self._admin()
        for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(READY_TIMEOUT_S)

    def _log_text(self) -> str:
        return (self._broker.directory / "server.log").read_text(errors="replace")

    def _admin(self):
        from confluent_kafka.admin import AdminClient

        return AdminClient(self.client_settings())

    def _wait_for_expiry(self) -> None:
        with zookeeper_session(self._zookeeper_address) as client:
            wait_until(lambda: not client.exists("/brokers/ids/0"))

    def _wait_for_state(self, topic: str | None) -> None:
        """Wait for the broker, and for a leader of the topic; clients wait for the rest."""
        state = f"/brokers/topics/{topic}/partitions/0/state"
        with zookeeper_session(self._zookeeper_address) as client:
            wait_until(lambda: client.exists("/brokers/ids/0"))
            wait_until(lambda: topic is None or client.exists(state))

    def _wait_for_leaders(self, topic: str | None = None) -> None:
        if self.is_oldest:
            self._wait_for_state(topic)
            return
        from confluent_kafka import KafkaException

        admin = self._admin()

        def is_led() -> bool:
            if self._broker.process.poll() is not None:
                raise RuntimeError(f"the broker died\n{self._log_text()[-3000:]}")
            with suppress(KafkaException):
                topics = admin.list_topics(timeout=60).topics
                partitions = [it for found in topics.values() for it in found.partitions.values()]
                is_there = topic is None or bool(topics[topic].partitions if topic in topics else 0)
                return is_there and all(it.leader == 0 for it in partitions)
            return False

        wait_until(is_led)


def send(producer, topic: str, count: int, *, keys: int, base: int) -> None:
    """Hand records to a producer; RuntimeError if it reports one as failed."""

    def delivered(error, _message) -> None:
        if error is not None:
            raise RuntimeError(f"{topic}: {error}")

    for key, value in records(count, keys=keys, base=base):
        producer.produce(topic, value=value, key=key, partition=0, on_delivery=delivered)
    producer.poll(0)


def records(count: int, *, keys: int, base: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values; the same keys come again and again."""
    for number in range(count):
        yield f"key-{number % keys}".encode(), f"{base}-{number} ".encode() * 8


def create_topics(broker: FilledBroker) -> None:
    """Create a topic for each thing that the version can do."""
    broker.create("plain", SMALL_SEGMENTS)
    broker.create("defaults", {"segment.bytes": 65536})
    broker.create("compacted", COMPACTED)
    broker.create("retained", SMALL_SEGMENTS | {"retention.bytes": 30000})
    if broker.release >= (0, 10):
        broker.create("append-time", SMALL_SEGMENTS | {"message.timestamp.type": "LogAppendTime"})
    if broker.release >= (0, 11):
        broker.create("transactions", SMALL_SEGMENTS)
        broker.create("compacted-transactions", COMPACTED)
        broker.create("deleted-records", SMALL_SEGMENTS)
    if (0, 10) <= broker.release < (3,):
        broker.create("formats", SMALL_SEGMENTS)
        broker.create("compacted-formats", COMPACTED)


def formats(broker: FilledBroker) -> list[str]:
    """List each message.format.version in the order in which topics take it."""
    found = ["0.9.0", "0.10.0", "0.9.0", "0.10.0"]
    if broker.release >= (0, 11):
        found += ["0.11.0", "0.10.2", "0.11.0"]
    return found


def fill(broker: FilledBroker, base: int, *, is_short: bool = False) -> None:
    """Write to every topic in every way that the version knows; `is_short`: in fewer ways."""
    _fill_with_codecs(broker, broker.codecs()[:2] if is_short else broker.codecs(), base)
    if broker.release >= (0, 11):
        _fill_with_transactions(broker, base)
    if (0, 10) <= broker.release < (3,) and not is_short:
        _fill_with_formats(broker, base)
    broker.commit_offsets("plain")
    if broker.release >= (0, 9):
        broker.join_group("plain", f"joined-{base}")
    if broker.release >= (4,):
        broker.join_group("plain", f"consumers-{base}", group_protocol="consumer")


def _fill_with_codecs(broker: FilledBroker, codecs: list[str], base: int) -> None:
    for number, codec in enumerate(codecs, base):
        for topic in ("plain", "defaults", "compacted", "retained"):
            broker.produce(topic, compression_codec=codec, base=number)
        if broker.release >= (0, 10):
            broker.produce("append-time", 100, compression_codec=codec, base=number)


def _fill_with_transactions(broker: FilledBroker, base: int) -> None:
    for topic in ("transactions", "compacted-transactions"):
        broker.produce(topic, 100, enable_idempotence=True)
        broker.run_transactions(topic)
    broker.produce("compacted", enable_idempotence=True)
    broker.produce("deleted-records", enable_idempotence=True)
    broker.delete_records("deleted-records", 150 + base)


def _fill_with_formats(broker: FilledBroker, base: int) -> None:
    for topic, settings in (("formats", SMALL_SEGMENTS), ("compacted-formats", COMPACTED)):
        for number, name in enumerate(formats(broker), base):
            broker.change_settings(topic, settings | {"message.format.version": name})
            for codec in ("none", "gzip"):
                broker.produce(topic, 60, compression_codec=codec, base=number)


def _put(client, path: str, document: dict[str, object]) -> None:
    data = json.dumps(document).encode()
    if client.exists(path):
        client.set(path, data)
    else:
        client.create(path, data, makepath=True)


def wait_until(holds) -> None:
    """Wait until `holds` returns true; RuntimeError after a minute."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError("not started within a minute")
        time.sleep(0.05)


if __name__ == "__main__":
    wanted = dict.fromkeys([*VERSIONS, *OLD_VERSIONS])
    subprocess.run(
        [sys.executable, Path(__file__).with_name("apache_kafka.py"), *wanted], check=True
    )
