"""kctl produce for brokers of Kafka 0.7: --broker-list, and --zookeeper.

Kafka 0.7: kafka.producer.ConsoleProducer
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.cli.records.produce_report import ProduceReport
from kctl.cli.session import Session
from kctl.errors import UnreachableError, UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.record_writer import WriteRequest
    from kctl.client.producer import NewRecord, ProducedRecord
    from kctl.kafka import Delivery, KeyedMessage


@dataclass(frozen=True)
class OldBrokers:
    """Where brokers of Kafka 0.7 are; the brokers of -b are not used then."""

    broker_list: Annotated[
        str | None,
        Option("--broker-list", metavar="ID:HOST:PORT,...", help="Write to brokers of Kafka 0.7."),
    ] = None
    zookeeper: Annotated[
        str | None,
        Option(
            "--zookeeper",
            metavar="HOST:PORT[/PATH]",
            help="Write to the brokers of Kafka 0.7 that are registered there.",
        ),
    ] = None

    @property
    def are_given(self) -> bool:
        """Return whether the records go to such brokers."""
        return self.broker_list is not None or self.zookeeper is not None

    def settings(self) -> dict[str, object]:
        """Return the settings of a producer; raise UsageError if both options are given."""
        if self.broker_list is not None and self.zookeeper is not None:
            raise UsageError("--broker-list and --zookeeper exclude each other")
        if self.broker_list is not None:
            return {"broker.list": self.broker_list}
        return {"zk.connect": self.zookeeper}


def write_old(
    session: Session,
    request: "WriteRequest",
    old: OldBrokers,
    chunks: "Iterable[Sequence[NewRecord]]",
    report: ProduceReport,
) -> int:
    """Write the records of all chunks, or up to the error that stops the producer."""
    from kctl.kafka import Producer
    from kctl.protocol.constants import ACKS_ALL

    if request.transactional_id is not None or request.acks != ACKS_ALL:
        raise UsageError("Kafka 0.7 knows neither --transactional-id nor --acks")
    session.settings.guard.check_may_use_zookeeper()
    settings = old.settings()
    if session.dry_run:
        for records in chunks:
            report.rehearse(len(records))
        return report.finish()
    settings |= {
        "producer.type": "async",
        "queue.enqueueTimeout.ms": -1,
        "compression.codec": request.compression_type,
    }
    with Producer(settings) as producer:
        for records in chunks:
            deliveries = producer.send([_message(request.topic, it) for it in records])
            producer.flush()
            errors = [it.error() for it in deliveries]
            stopped_by = next((it for it in errors if isinstance(it, UnreachableError)), None)
            report.add([_result(it) for it in deliveries], stopped_by)
            if stopped_by is not None:
                break
    session.output.say("note: Kafka 0.7 acknowledges nothing; written means sent")
    return report.finish()


def _message(topic: str, record: "NewRecord") -> "KeyedMessage":
    """Return the message; its key chooses the partition as a String does in Java."""
    from kctl.kafka import KeyedMessage

    choice = None if record.key is None else record.key.decode("utf-8", "replace")
    return KeyedMessage(
        topic, record.value, record.key, choice, record.partition, record.headers, record.timestamp
    )


def _result(delivery: "Delivery") -> "ProducedRecord":
    from kctl.client.producer import Outcome, ProducedRecord

    error = delivery.error()
    if error is None:
        written = delivery.result()
        return ProducedRecord(written.partition, written.offset, written.timestamp_ms)
    is_unknown = isinstance(error, UnreachableError)
    outcome = Outcome.UNKNOWN if is_unknown else Outcome.REJECTED
    return ProducedRecord(-1, -1, -1, error, outcome)
