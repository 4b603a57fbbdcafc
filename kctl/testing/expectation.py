"""ProducedRecords: a context, sync or async, whose block must write records to a topic.

It remembers the topic's end when the block begins; when the block ends, it waits for the records
written since. An exception in the block takes precedence.
"""

import sys
from collections.abc import Mapping
from typing import Protocol

from kctl.counts import counted
from kctl.errors import UsageError
from kctl.export.options import Isolation
from kctl.testing.topic_records import Record

# How long a coroutine sleeps between polls.
_POLL_S = 0.005
_SHOWN_MAX = 10


class ReadableBroker(Protocol):
    """The methods of KafkaBroker that ProducedRecords uses."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition."""
        ...

    def records_since(
        self, topic: str, first_offsets: Mapping[int, int], *, isolation: str
    ) -> list[Record]:
        """Return the records from `first_offsets` on."""
        ...

    def wait_for_records(
        self,
        topic: str,
        first_offsets: Mapping[int, int],
        count: int,
        timeout: float,
        *,
        isolation: str,
    ) -> bool:
        """Wait until `records_since` returns `count` records; return whether it does."""
        ...


class ProducedRecords:
    """The context that `KafkaBroker.assert_produces` returns."""

    def __init__(
        self,
        broker: ReadableBroker,
        topic: str,
        count: int | None,
        timeout: float,
        isolation: Isolation,
    ) -> None:
        if count is not None and count < 0:
            raise UsageError(f"count={count}: the number of records cannot be negative")
        self._broker = broker
        self._topic = topic
        self._count = count
        self._timeout = timeout
        self._isolation = isolation
        self._first_offsets: dict[int, int] = {}
        # Filled at the end of the block.
        self._records: list[Record] = []

    def __enter__(self) -> list[Record]:
        if _is_in_coroutine():
            raise UsageError(
                "assert_produces in a coroutine would block the event loop",
                hint="use async with broker.assert_produces(...)",
            )
        return self._begin()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        if kind is None:
            self._are_written(self._timeout)
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
        # Local: a caller with a coroutine has imported asyncio already, others do not need it.
        import asyncio

        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        while loop.time() < deadline and not self._are_written(0):
            await asyncio.sleep(_POLL_S)

    def _are_written(self, timeout: float) -> bool:
        return self._broker.wait_for_records(
            self._topic, self._first_offsets, self._awaited, timeout, isolation=self._isolation
        )

    def _records_since(self, isolation: Isolation) -> list[Record]:
        if not self._broker.end_offsets(self._topic):
            return []
        return self._broker.records_since(self._topic, self._first_offsets, isolation=isolation)

    def _check(self) -> None:
        __tracebackhide__ = True
        self._records += self._records_since(self._isolation)
        found = len(self._records)
        if found == self._count or (self._count is None and found):
            return
        wanted = "records" if self._count is None else counted(self._count, "record")
        late = f" within {self._timeout:g} s" if found < self._awaited else ""
        shown = "".join(f"\n  {record}" for record in self._records[:_SHOWN_MAX])
        raise AssertionError(
            f"expected {wanted} in {self._topic!r}{late}, found {found}{self._hidden()}{shown}"
        )

    def _hidden(self) -> str:
        """Return what to add to the message if the isolation level hides records."""
        hidden = len(self._records_since(Isolation.READ_UNCOMMITTED)) - len(self._records)
        if hidden <= 0:
            return ""
        return (
            f"; read_committed hides {hidden} more, in or after transactions that are open or"
            ' aborted (isolation="read_uncommitted" counts them)'
        )


def _is_in_coroutine() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
