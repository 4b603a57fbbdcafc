"""Sends responses that are built in several turns of the loop.

An error in a later turn has no caller to handle it: the request fails (`Request.fail`), so that its
client does not wait for a response that never arrives.
"""

from collections.abc import Coroutine
from typing import Any

from kctl.broker.request import Request
from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler
from kctl.runtime.turns import in_turns
from kctl.work import Work


def reply_in_turns(scheduler: Scheduler, request: Request, work: Work[Any]) -> None:
    """Do `work` in turns of the loop, and send the response that it returns."""
    in_turns(scheduler, work, request.reply, request.fail)


def reply_from(
    scheduler: Scheduler, request: Request, coroutine: Coroutine[Any, Any, None], name: str
) -> None:
    """Start `coroutine`, which sends the response of `request`, as the task `name`."""

    def ended(task: Future[None]) -> None:
        error = task.error()
        if isinstance(error, Exception):
            request.fail(error)

    scheduler.spawn(coroutine, name).add_done_callback(ended)
