"""ClientLoop: coroutines of kctl's loop for threads and for asyncio."""

import asyncio
import logging
import threading

import pytest

from kctl.errors import TimedOutError, UsageError
from kctl.kafka.client_loop import ClientLoop
from kctl.runtime.future import CancelledError, sleep
from tests.support.waiting import wait_for


@pytest.fixture
def loop():
    loop = ClientLoop()
    yield loop
    loop.close()


async def add(loop, left, right):
    await sleep(loop.runtime.scheduler, 1)
    return left + right


def test_a_thread_waits_for_a_coroutine(loop):
    assert loop.run(add, loop, 1, 2) == 3


def test_asyncio_awaits_a_coroutine(loop):
    async def main():
        return await asyncio.gather(
            loop.run_async(add, loop, 1, 2), loop.run_async(add, loop, 3, 4)
        )

    assert asyncio.run(main()) == [3, 7]


def test_errors_are_raised_where_the_caller_waits(loop):
    async def fail():
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        loop.run(fail)
    with pytest.raises(UsageError, match="no"):
        asyncio.run(loop.run_async(fail))


def endless(loop, seen):
    async def wait():
        try:
            await loop.runtime.scheduler.future()
        except CancelledError:
            seen.append("cancelled")
            raise

    return wait


def test_a_caller_that_stops_waiting_cancels_its_coroutine(loop):
    seen = []
    with pytest.raises(TimedOutError, match="no result"):
        loop.run(endless(loop, seen), timeout_s=0.01)
    wait_for(lambda: seen == ["cancelled"], lambda: f"{seen}")

    async def main():
        task = asyncio.ensure_future(loop.run_async(endless(loop, seen)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    loop.run(add, loop, 1, 1)
    assert len(seen) <= 2


def test_the_loops_own_thread_is_not_made_to_wait_for_itself(loop):
    with pytest.raises(UsageError, match="own thread"):
        loop.run(lambda: loop.run(lambda: None))
    assert loop.run(lambda: loop.is_own_thread)
    assert not loop.is_own_thread


def test_who_waits_when_the_loop_is_closed_gets_an_error():
    loop = ClientLoop()
    errors = []

    def wait():
        try:
            loop.run(endless(loop, []))
        except UsageError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    wait_for(lambda: loop._thread._waited_for, lambda: "the call does not wait")
    loop.close()
    thread.join(10)
    assert errors == ["the loop is closed"]
    with pytest.raises(UsageError, match="closed"):
        loop.run(lambda: None)


def test_a_client_logs_to_the_logger_of_the_library(loop, caplog):
    with caplog.at_level(logging.INFO, "kctl.kafka"):
        loop.run(lambda: loop.runtime.trace.warning("slow"))
        loop.run(lambda: loop.runtime.trace.info("connected"))
    assert [it.message for it in caplog.records] == ["slow", "connected"]
