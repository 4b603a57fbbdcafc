"""Logs are found by listings that look for the sizes of segments only."""

import pytest

from kctl.arrow_files.log_discovery import find_logs
from kctl.errors import UsageError
from kctl.runtime.real.directory_entries import sized_files, subdirectories
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment


@pytest.fixture
def orders(tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    write_segment(RealDisk(), directory, 0, [batch_of(10 * n) for n in range(10)])
    return directory


def test_an_index_that_was_not_listed_is_used(orders):
    (log,) = find_logs([str(orders.parent)], ())
    assert log.beside == {}
    assert len(log.index_entries(log.segments[0])) == 9
    (listed,) = find_logs([str(orders)], ())
    assert len(listed.index_entries(listed.segments[0])) == 9
    assert (log.end_offset, listed.end_offset) == (100, 100)


def test_a_segment_without_an_index_is_read_from_its_beginning(orders):
    for path in orders.glob("*.index"):
        path.unlink()
    (log,) = find_logs([str(orders.parent)], ())
    assert len(log.index_entries(log.segments[0])) == 0
    assert log.end_offset == 100


def test_files_that_are_gone_directories_and_other_names_are_left_out(tmp_path):
    (tmp_path / "a.log").write_bytes(b"123")
    (tmp_path / "b.log").mkdir()
    (tmp_path / "c.index").write_bytes(b"1")
    (tmp_path / "d.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / "e.log").symlink_to(tmp_path / "a.log")
    assert sorted(sized_files(str(tmp_path), (".log",))) == [("a.log", 3), ("e.log", 3)]
    assert subdirectories(str(tmp_path)) == ["b.log"]


def test_the_directory_around_a_log_directory_is_not_one_and_the_hint_names_it(orders):
    data = orders.parent.parent
    (orders.parent / "meta.properties").touch()
    with pytest.raises(UsageError, match="no partition found") as failed:
        find_logs([f"{data}/"], [])
    assert failed.value.hint == f"did you mean {data}/logs?"
