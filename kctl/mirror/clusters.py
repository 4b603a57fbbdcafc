"""Connects a mirror to its source, beside the target it is already connected to."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

from kctl.admin.admin_client import AdminClient
from kctl.lazy_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """Where and how to connect to the source."""

    bootstrap_servers: Sequence[tuple[str, int]]
    timeout_ms: int
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


async def with_source(
    target: AdminClient,
    cluster: SourceCluster,
    check: Callable[[AdminClient], Awaitable[None]],
    work: Callable[[AdminClient, AdminClient], Awaitable[T]],
) -> T:
    """Connect to the source, `check` it, and return the result of `work(source, target)`. Requests
    that could change something are not sent to the source."""
    source = AdminClient.connect(
        target.router.runtime, cluster.bootstrap_servers, cluster.timeout_ms, cluster.properties,
        reads_only=True,
    )  # fmt: skip
    try:
        await check(source)
        return await work(source, target)
    finally:
        source.close()
