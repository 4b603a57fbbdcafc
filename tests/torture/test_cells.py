"""Cells of the fault matrix that no other test plays; `make torture` plays all, for hours.

Played elsewhere: kill -9 of leaders and controllers (tests/crash: test_queue_faults, test_copier,
test_kill_loop, and tests/interop/test_mixed_cluster), copiers killed in a transaction
(test_copier), a lone broker's full disk and power cuts without transactions (tests/serve:
test_disk_full; test_power_cut).
"""

import os

import pytest

from tests.torture.cells import Cell, play, text_of

pytestmark = [pytest.mark.slow, pytest.mark.long]

SEED = int(os.environ.get("KCTL_SEED", "1"))
PLAYED = [
    ("K3", "F3", "CD"),
    ("K3", "F4", "CD"),
    ("K3", "F7", "CD"),
    ("K3", "F9", "CD"),
    ("K3", "F11", "CD"),
    ("K3", "F13", "CD"),
    ("K1", "F11", "CD"),
    ("K1", "F15", "BCD"),
    pytest.param("X", "F13", "CD", marks=pytest.mark.kafka),
    # Once of each; as a campaign: `python -m tests.torture --system M,X --fault F17 --mode CI ...`
    pytest.param("M", "F17", "CI", marks=pytest.mark.kafka),
    pytest.param("X", "F17", "CI", marks=pytest.mark.kafka),
]


@pytest.mark.parametrize(("system", "fault", "modes"), PLAYED)
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order(tmp_path, system, fault, modes):
    cell = Cell(system, (fault,), modes, SEED)
    if (reason := cell.why_not()) is not None:
        pytest.skip(f"{cell}: {reason}")
    row = play(cell, tmp_path)
    assert row.is_good, text_of(row)
