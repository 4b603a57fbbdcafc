"""A broker of Apache Kafka 3.3 to 4.1 without ZooKeeper: one process that is broker and controller.

`kraft_broker("4.1.0", directory)` formats the directory, starts the process, and kills it at the
end.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import apache_kafka
from tests.support.apache_kafka import ApacheBroker

CLUSTER_ID = "a2N0bC10ZXN0cy1rcmFmdA"
NODE_ID = 1
# What keeps a cluster of one broker small.
SINGLE = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "auto.create.topics.enable": "false",
}


@contextmanager
def kraft_broker(
    version: str, directory: Path, *format_arguments: str, **settings: object
) -> Iterator[ApacheBroker]:
    """Run a broker of `version`, which is its own controller; skip the test if it cannot run here.

    `format_arguments` are added to `kafka-storage format`, `settings` to server.properties, with
    underscores for dots.
    """
    if apache_kafka.libs(version) is None:
        pytest.skip(f"no jars of Apache Kafka {version}: python -m tests.support.kafka_versions")
    broker = _broker(
        version, directory, {name.replace("_", "."): settings[name] for name in settings}
    )
    apache_kafka.run_tool(
        "kafka.tools.StorageTool",
        *("format", "-t", CLUSTER_ID, "-c", broker.write_config(), *format_arguments),
        version=version,
    )
    broker.launch()
    try:
        yield broker.wait_until_ready()
    finally:
        broker.kill()


def _broker(version: str, directory: Path, settings: dict[str, object]) -> ApacheBroker:
    port, controller_port = apache_kafka.free_port(), apache_kafka.free_port()
    controller = f"127.0.0.1:{controller_port}"
    roles = {
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "broker.id": NODE_ID,
        "controller.quorum.voters": f"{NODE_ID}@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://{controller}",
    }
    return ApacheBroker(
        directory, "", port=port, settings={**SINGLE, **roles, **settings}, version=version
    )
