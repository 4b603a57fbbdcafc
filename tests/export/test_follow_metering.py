"""The metrics of a table that follows its logs, as Prometheus reads them."""

from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from kctl.errors import UnreachableError
from kctl.export.export import ExportRequest
from kctl.export.follow import Follower
from kctl.export.follow_sources import DirectorySource
from kctl.export.options import ExportOptions, FieldFormat
from kctl.model import Endpoint
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.future import sleep
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.trace import NullTrace
from tests.export.log_files import batch_of, write_segment

pytest.importorskip("h11")
pytest.importorskip("pyarrow")

LIMIT_S = 60


class Unsteady(DirectorySource):
    """A source that can be away."""

    is_away = False

    async def look(self, request, known):
        if self.is_away:
            raise UnreachableError("no broker answers")
        return await super().look(request, known)


def get(endpoint, path):
    try:
        with urlopen(f"http://{endpoint.host}:{endpoint.port}{path}", timeout=LIMIT_S) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def figures(text):
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def runtime():
    running = make_runtime(NullTrace())
    yield running
    running.scheduler.close()


class Metered:
    """Rounds of a run, and its pages between them."""

    def __init__(self, runtime, source, request):
        from kctl.export.follow_metering import FollowMetering

        self.runtime = runtime
        self.follower = Follower(runtime, source, request, every_ms=60_000)
        self.metering = FollowMetering(runtime, self.follower, Endpoint("127.0.0.1", 0))
        self.at = self.metering.start().endpoint

    def do(self, work):
        return self.runtime.scheduler.run_until(self.runtime.scheduler.spawn(work))

    def round(self):
        return self.do(self.follower.round())

    def page(self, path):
        async def answer():
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(get, self.at, path)
                while not asked.done():
                    await sleep(self.runtime.scheduler, 1)
                return asked.result()

        return self.do(answer())

    def figures(self):
        return figures(self.page("/metrics")[1])


@pytest.fixture
def log(tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    return directory / f"{0:020d}.log"


@pytest.fixture
def metered(runtime, tmp_path):
    started = []

    def start(source=None, **options):
        request = ExportRequest(
            [str(tmp_path / "logs")], str(tmp_path / "table"), ExportOptions(**options), ()
        )
        started.append(Metered(runtime, source or DirectorySource(), request))
        return started[-1]

    yield start
    for it in started:
        it.metering.close()


def test_the_figures_equal_what_was_committed(log, metered):
    log.write_bytes(batch_of(0))
    run = metered()
    before = run.figures()
    assert before["kctl_follow_commits_total"] == 0
    assert before["kctl_follow_lag_seconds"] >= 0
    assert "kctl_follow_last_commit_age_seconds" not in before

    run.round()
    found = run.figures()

    assert found['kctl_follow_rows_total{topic="orders"}'] == 10
    assert found['kctl_follow_log_bytes_total{topic="orders"}'] == len(batch_of(0))
    assert found['kctl_follow_dead_letters_total{topic="orders"}'] == 0
    assert found["kctl_follow_commits_total"] == 1
    assert found["kctl_follow_partitions"] == 1
    assert found["kctl_follow_lag_records"] == 0
    assert found["kctl_follow_last_commit_age_seconds"] >= 0

    with log.open("ab") as file:
        file.write(batch_of(10))
    run.round()
    found = run.figures()
    assert found['kctl_follow_rows_total{topic="orders"}'] == 20
    assert found["kctl_follow_commits_total"] == 2


def test_dead_letters_are_counted(log, metered, tmp_path):
    values = (b"good", b"\xff", b"\xfe")
    records = [Record(n, 1000 + n, b"key", value, ()) for n, value in enumerate(values)]
    write_segment(RealDisk(), log.parent, 0, [build_batch(records)])
    run = metered(value_format=FieldFormat.STRING, dead_letters=str(tmp_path / "letters"))
    run.round()

    found = run.figures()
    assert found['kctl_follow_dead_letters_total{topic="orders"}'] == 2
    assert found['kctl_follow_rows_total{topic="orders"}'] == 1


def test_the_table_is_ready_once_it_has_caught_up_and_while_its_source_answers(log, metered):
    log.write_bytes(batch_of(0))
    source = Unsteady()
    run = metered(source)
    status, text = run.page("/readyz")
    assert status == 503
    assert "has not caught up" in text
    assert run.page("/healthz")[0] == 200

    run.round()
    assert run.page("/readyz")[0] == 200

    caught_ms = run.follower.current_ms
    source.is_away = True
    run.round()
    status, text = run.page("/readyz")
    assert status == 503
    assert "no broker answers" in text
    # The lag in seconds grows from the last look that was complete.
    assert run.follower.current_ms == caught_ms

    source.is_away = False
    run.round()
    assert run.page("/readyz")[0] == 200
    assert run.follower.current_ms >= caught_ms


def test_records_lost_before_they_were_exported_are_counted(log, metered):
    log.write_bytes(batch_of(0))
    run = metered()
    run.round()
    log.unlink()
    log.with_name(f"{25:020d}.log").write_bytes(batch_of(25))
    run.round()

    assert run.figures()["kctl_follow_lost_ranges_total"] == 1


def test_a_backlog_is_behind_and_says_how_much(log, metered, monkeypatch):
    monkeypatch.setattr("kctl.export.follow.ROUND_SPLITS_MAX", 1)
    for partition in range(2):
        path = log.parent.parent / f"orders-{partition}" / log.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(batch_of(0))
    run = metered()

    assert not run.round()
    assert run.figures()["kctl_follow_lag_records"] == 10
    assert run.page("/readyz")[0] == 503

    assert run.round()
    assert run.figures()["kctl_follow_lag_records"] == 0
    assert run.page("/readyz")[0] == 200
