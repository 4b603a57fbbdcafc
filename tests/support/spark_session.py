"""A Spark session for tests, started as `kctl export --spark` starts it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SETTINGS = {
    "spark.master": "local[2]", "spark.ui.enabled": "false", "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2",
}  # fmt: skip


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
