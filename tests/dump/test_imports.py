"""What `dump-log` imports for a large file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.records.builder import RecordBatchBuilder

pytest.importorskip("pyarrow")
ROOT = Path(__file__).parents[2]
# Read in bulk from 512 KiB on.
BATCHES = 12
VALUE = b"v" * 60_000


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    with path.open("wb") as file:
        for offset in range(BATCHES):
            builder = RecordBatchBuilder(base_offset=offset)
            headers = [("name", b"value")]
            builder.append(timestamp=1_600_000_000_000, key=None, value=VALUE, headers=headers)
            file.write(builder.build())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("style", ["kafka", "text"])
@pytest.mark.parametrize("option", ["--deep-iteration", "--print-data-log"])
def test_a_large_file_is_dumped_without_pandas(log, tmp_path, style, option):
    """Pyarrow imports pandas, if it is there, wherever it converts a Python object."""
    (tmp_path / "modules" / "pandas").mkdir(parents=True)
    marker = tmp_path / "imported"
    module = f"open({str(marker)!r}, 'w').close()\n__version__ = '2.0.0'\n"
    (tmp_path / "modules" / "pandas" / "__init__.py").write_text(module)
    path = os.pathsep.join([str(tmp_path / "modules"), str(ROOT)])
    command = [sys.executable, "-m", "kctl", "dump-log", "--format", style, option, str(log)]
    found = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True
    )
    assert found.stdout.count(b"offset" if style == "kafka" else b" B  v2") >= BATCHES
    assert not marker.exists()
