"""A Spark session for tests, started as `kctl export --spark` starts it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

SETTINGS = {
    "spark.master": "local[2]", "spark.ui.enabled": "false", "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2",
}  # fmt: skip


T = TypeVar("T")
_STARTS_MAX = 20
_NOT_STARTED = "Python worker failed to connect back"


def patiently(follow: Callable[[], T]) -> T:
    """What `follow` returns, which runs a stream to its end: Spark gives the stream's Python ten
    seconds to start, and a busy machine may not have them; then it is started once more."""
    for _ in range(_STARTS_MAX - 1):
        try:
            return follow()
        except Exception as error:
            if _NOT_STARTED not in str(error):
                raise
    return follow()


@contextmanager
def local_session(**more: str) -> Iterator[Any]:
    """With the data source `kctl`."""
    from kctl.export.spark.runner import make_session
    from kctl.export.spark.source import KctlDataSource
    from kctl.runtime.real.spark_gateway import start_spark_gateway

    conf = list((SETTINGS | more).items())
    gateway = start_spark_gateway(conf)
    try:
        session = make_session(conf)
        gateway.hide()
        session.dataSource.register(KctlDataSource)
        yield session
        session.stop()
    finally:
        gateway.close()
