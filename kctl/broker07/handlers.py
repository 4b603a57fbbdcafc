"""The five requests of Kafka 0.7: what each does, and what every mishap looks like from outside.

    mishap                    PRODUCE                   FETCH, each part       OFFSETS
    illegal topic name        closed                    error -1               closed
    partition out of range    closed                    error 3                closed
    no log yet                created                   nothing                [0] or []
    log offline               closed                    error -1               closed
    damaged or too deep set   closed                    -                      -
    payload too large         set dropped, a warning    -                      -
    offset out of range       -                         error 1                -
    negative sizes            closed                    error 4                closed

PRODUCE and MULTIPRODUCE are never answered; the parts before one that closes the connection are
stored. A request is over when its messages are flushed, if they are due to be, so the next one on
the connection sees them.

Different from 0.7 on purpose: a negative size of a fetch is answered (0.7 sends a size that cannot
be and closes); names are checked as in 0.7.2, before anything is created; the depth and the size
of what is compressed are bounded (`set_check`).

Kafka 0.7: kafka.server.KafkaRequestHandlers
"""

from collections.abc import Sequence

from kctl.broker07.config import Broker07Config
from kctl.broker07.log import Found
from kctl.broker07.log_manager import LogManager07
from kctl.broker07.set_check import CheckedSet, checking
from kctl.broker07.topic_names import fault_of_name
from kctl.errors import CorruptDataError, StorageError
from kctl.model import TopicPartition
from kctl.protocol.kafka07 import (
    ANY_PARTITION,
    EARLIEST_TIME,
    ERROR_BYTES,
    LATEST_TIME,
    SIZE_BYTES,
    FetchRequest,
    Kafka07Error,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    decoding_request,
    encode_header,
    encode_offsets_answer,
)
from kctl.protocol.primitives import Buffer
from kctl.runtime.complaints import Complaints
from kctl.runtime.future import Future
from kctl.runtime.network import Part
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import next_turn, pace_of
from kctl.runtime.work_queue import WorkQueue
from kctl.work import finished

# What a size can announce.
ANSWER_BYTES_MAX = 0x7FFF_FFFF
# Parts of a multifetch up to this size are copied: a system call for each would take longer.
COPIED_BYTES_MAX = 1_024
# Of these, how many bytes are copied at once.
GATHERED_BYTES_MAX = 256 * 1024
_HEADER_BYTES = SIZE_BYTES + ERROR_BYTES
# Units of a Pace, which are some 5 us each.
_FETCH_UNITS = 4
_PRODUCE_UNITS = 10
_CREATE_UNITS = 60


class Handlers07:
    """Answers requests, one function for each kind."""

    def __init__(self, runtime: Runtime, config: Broker07Config, logs: LogManager07) -> None:
        self._runtime = runtime
        self._config = config
        self._logs = logs
        self._queue = WorkQueue(runtime.scheduler)
        self._complaints = Complaints()

    async def answer(self, frame: Buffer) -> Sequence[Part]:
        """Return the answer to the request in `frame`, nothing for one that has none.

        CorruptDataError or StorageError: the connection is to be closed, without an answer.
        """
        request = await finished(decoding_request(frame), self._turn)
        match request:
            case FetchRequest():
                return _with_header(self._fetch(request, ANSWER_BYTES_MAX))
            case MultiFetchRequest():
                return await self._multifetch(request)
            case ProduceRequest():
                await self._produce(request)
            case MultiProduceRequest():
                pace = pace_of(self._runtime.scheduler)
                for part in request.parts:
                    created = await self._produce(part)
                    await pace.spend(_CREATE_UNITS if created else _PRODUCE_UNITS)
            case OffsetsRequest():
                return [encode_offsets_answer(await self._offsets(request))]
        return ()

    def _turn(self) -> Future[None]:
        return next_turn(self._runtime.scheduler)

    # --- produce

    async def _produce(self, request: ProduceRequest) -> bool:
        """Append a set; return whether a log was created for it."""
        topic_partition = self._checked(request.topic, request.partition, is_produce=True)
        is_new = self._logs.get(topic_partition) is None
        log = self._logs.get_or_create(topic_partition)
        checked = await self._checked_set(request.message_set)
        if checked.too_large:
            self._warn(
                topic_partition,
                f"{topic_partition}: a set is dropped for a message of {checked.too_large} bytes;"
                f" max.message.size is {self._config.message_bytes_max}",
            )
        elif checked.length:
            stored = memoryview(request.message_set)[: checked.length]
            await self._logs.append(log, stored, checked.messages)
        return is_new

    def _checked(self, topic: str, partition: int, *, is_produce: bool = False) -> TopicPartition:
        fault = fault_of_name(topic, self._config.topic_name_length_max)
        if fault is not None:
            raise CorruptDataError(fault)
        count = self._config.partition_count(topic)
        if is_produce and partition == ANY_PARTITION:
            partition = self._runtime.entropy.random_below(count)
        if not 0 <= partition < count:
            raise CorruptDataError(f"partition {partition} of {topic}, which has {count}")
        return TopicPartition(topic, partition)

    def _checked_set(self, message_set: Buffer) -> Future[CheckedSet]:
        future: Future[CheckedSet] = self._runtime.scheduler.future()
        work = checking(message_set, self._config.message_bytes_max)
        self._queue.start(work, future.set_result, future.set_error, lambda: True)
        return future

    def _warn(self, topic_partition: TopicPartition, text: str) -> None:
        now_ms = self._runtime.clock.monotonic_ms()
        line = self._complaints.line(str(topic_partition), lambda: text, now_ms)
        if line is not None:
            self._runtime.trace.warning(line)

    # --- fetch

    def _fetch(self, request: FetchRequest, bytes_max: int) -> Found:
        topic, partition = request.topic, request.partition
        if fault_of_name(topic, self._config.topic_name_length_max) is not None:
            return Found(Kafka07Error.UNKNOWN, None)
        if not 0 <= partition < self._config.partition_count(topic):
            return Found(Kafka07Error.WRONG_PARTITION, None)
        try:
            log = self._logs.get(TopicPartition(topic, partition))
            if log is None:
                return Found(Kafka07Error.NONE, None)
            return log.read(request.offset, min(request.bytes_max, bytes_max))
        except StorageError as error:
            self._warn(TopicPartition(topic, partition), str(error))
            return Found(Kafka07Error.UNKNOWN, None)

    async def _multifetch(self, request: MultiFetchRequest) -> Sequence[Part]:
        pace = pace_of(self._runtime.scheduler)
        # What all parts together may still have, so that the size of the whole fits its field.
        left = ANSWER_BYTES_MAX - ERROR_BYTES - _HEADER_BYTES * len(request.parts)
        parts: list[Part] = [b""]
        # Headers and short data between two slices of files.
        gathered = bytearray()
        for fetch in request.parts:
            found = self._fetch(fetch, left)
            part = found.part
            gathered += encode_header(found.error, 0 if part is None else len(part))
            if part is not None:
                left -= len(part)
                if len(part) <= COPIED_BYTES_MAX:
                    gathered += part.file.pread(len(part), part.position)
                else:
                    parts += (bytes(gathered), part)
                    gathered.clear()
            if len(gathered) > GATHERED_BYTES_MAX:
                parts.append(bytes(gathered))
                gathered.clear()
            await pace.spend(_FETCH_UNITS)
        parts.append(bytes(gathered))
        parts[0] = encode_header(Kafka07Error.NONE, ANSWER_BYTES_MAX - ERROR_BYTES - left)
        return parts

    # --- offsets

    async def _offsets(self, request: OffsetsRequest) -> Sequence[int]:
        log = self._logs.get(self._checked(request.topic, request.partition))
        time_ms = request.time_ms
        if log is None:
            return [0] if time_ms in (LATEST_TIME, EARLIEST_TIME) else []
        if request.count_max < 0:
            raise CorruptDataError(f"at most {request.count_max} offsets")
        now_ms = self._runtime.clock.wall_ms()
        return await finished(log.offsets_before(time_ms, request.count_max, now_ms), self._turn)


def _with_header(found: Found) -> list[Part]:
    if found.part is None:
        return [encode_header(found.error, 0)]
    return [encode_header(found.error, len(found.part)), found.part]
