"""An Iceberg table in a SQL catalog of PostgreSQL has each row of the log once."""

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from kctl.cli.app import run as kctl
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment

catalogs = pytest.importorskip("pyiceberg.catalog")
pytest.importorskip("psycopg2", reason="psycopg2 is not installed")
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def server(tmp_path_factory):
    """The URI of a server on loopback, as the user `postgres`: root may not run one."""
    if not PROGRAMS or shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    place = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    shutil.chown(place, "postgres")
    programs = PROGRAMS[-1].parent

    def run(name, *words):
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        subprocess.run([*user, programs / name, "-D", place / "data", *words], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={place}"
    run("initdb", "-A", "trust", "-N")
    try:
        run("pg_ctl", "-w", "-l", place / "log", "-o", settings, "start")
        yield f"postgresql+psycopg2://postgres@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(place)


def test_runs_are_commits_of_the_catalogs_table(server, tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    words = ["export", str(directory), "-f", "iceberg", "--catalog", server]
    words += ["--catalog-table", "sales.orders", "--out", str(tmp_path / "table")]
    for number in range(3):
        write_segment(RealDisk(), directory, 10 * number, [batch_of(10 * number)])
        for _ in range(2):
            assert kctl(words) == 0
            table = catalogs.load_catalog("kctl", uri=server).load_table("sales.orders")
            found = sorted(table.scan().to_arrow()["offset"].to_pylist())
            assert found == list(range(10 * number + 10))
