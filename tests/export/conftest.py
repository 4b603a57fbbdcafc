import pytest

from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.options import ExportOptions
from tests.support import golden_logs, spark_kafka
from tests.support.spark_session import local_session


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """A log directory that Apache Kafka 2.7.2 shut down cleanly."""
    return golden_logs.unpack("clean", tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def spark():
    """One session for all tests, as pyspark has one JVM per process; with Spark's own Kafka source
    if its jars are installed."""
    pytest.importorskip("pyspark")
    jars = spark_kafka.jars() or []
    with local_session(**{"spark.jars": ",".join(map(str, jars))}) as session:
        yield session


@pytest.fixture
def export(tmp_path):
    """Runs an export to a table below tmp_path; each run has a unique name."""
    count = 0

    def run(
        *sources, out="table", topics=(), partitions=(), bounds=None, runner=run_here, **options
    ):
        nonlocal count
        count += 1
        request = ExportRequest(
            [str(source) for source in sources], str(tmp_path / out), ExportOptions(**options),
            topics, partitions, run=f"run{count}",
        )  # fmt: skip
        if bounds is not None:
            request.bounds = bounds
        return export_logs(request, runner)

    return run
