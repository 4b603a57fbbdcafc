"""numpy and pyarrow are loaded by what decodes in bulk, and by nothing else."""

import subprocess
import sys

import pytest

from kctl.records.builder import build_batch
from kctl.records.record import Record

HEAVY = ("numpy", "pyarrow", "pyspark")


def loaded_by(code, *words):
    text = f"{code}; print('loaded:', *[n for n in {HEAVY} if n in sys.modules], file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; {text}", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.stderr.splitlines()[-1]


@pytest.fixture
def segment(tmp_path):
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(build_batch([Record(0, 1, b"k", b"v")]))
    return path


def test_dump_of_a_small_file_loads_neither(segment):
    command = "from kctl.cli.app import run; run(sys.argv[1:])"
    assert loaded_by(command, "dump-log", "--print-data-log", str(segment)) == "loaded:"


@pytest.mark.parametrize(
    "module", ["kctl.broker.broker", "kctl.cli.serve.commands", "kctl.cli.topic.commands"]
)
def test_broker_and_admin_commands_load_neither(module):
    assert loaded_by(f"import {module}") == "loaded:"


def test_columns_without_arrow_load_numpy_only(segment):
    code = (
        "from kctl.records.columnar import decode_columns as d; d(open(sys.argv[1], 'rb').read())"
    )
    assert loaded_by(code, str(segment)) == "loaded: numpy"
