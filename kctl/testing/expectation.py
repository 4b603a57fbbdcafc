"""ProducedRecords: a block of a test that must bring records to a topic, sync or async.

It remembers where the topic ends when the block begins, and at its end waits for what has come
since. An error of the block itself goes first.
"""

import sys
from typing import TYPE_CHECKING

from kctl.errors import UsageError
from kctl.testing.topic_records import Record

if TYPE_CHECKING:
    from kctl.testing.kafka_broker import KafkaBroker

# How long a coroutine sleeps between looks.
_LOOK_S = 0.005
_SHOWN_MAX = 10


class ProducedRecords:
    """See `KafkaBroker.assert_produces`."""

    def __init__(
        self, broker: "KafkaBroker", topic: str, count: int | None, timeout: float
    ) -> None:
        if count is not None and count < 0:
            raise UsageError(f"count={count}: there cannot be so few records")
        self._broker = broker
        self._topic = topic
        self._count = count
        self._timeout = timeout
        self._first_offsets: dict[int, int] = {}
        # Filled at the end of the block.
        self._records: list[Record] = []

    def __enter__(self) -> list[Record]:
        if _is_in_coroutine():
            raise UsageError(
                "assert_produces in a coroutine would stop the loop that is to produce",
                hint="async with broker.assert_produces(...)",
            )
        return self._begin()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        if kind is None:
            self._broker.wait_for_records(
                self._topic, self._first_offsets, self._awaited, self._timeout
            )
            self._check()

    async def __aenter__(self) -> list[Record]:
        return self._begin()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        if kind is None:
            await self._wait_async()
            self._check()

    @property
    def _awaited(self) -> int:
        return 1 if self._count is None else self._count

    def _begin(self) -> list[Record]:
        self._first_offsets = self._broker.end_offsets(self._topic)
        return self._records

    async def _wait_async(self) -> None:
        # Whoever has a coroutine to wait in has loaded it.
        import asyncio

        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while loop.time() < deadline and not self._broker.wait_for_records(
            self._topic, self._first_offsets, self._awaited, 0
        ):
            await asyncio.sleep(_LOOK_S)

    def _check(self) -> None:
        __tracebackhide__ = True
        if self._broker.end_offsets(self._topic):
            self._records += self._broker.records_since(self._topic, self._first_offsets)
        found = len(self._records)
        if found == self._count or (self._count is None and found):
            return
        wanted = "records" if self._count is None else f"{self._count} records"
        late = f" within {self._timeout:g} s" if found < self._awaited else ""
        shown = "".join(f"\n  {record}" for record in self._records[:_SHOWN_MAX])
        raise AssertionError(f"expected {wanted} in {self._topic!r}{late}, found {found}{shown}")


def _is_in_coroutine() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
