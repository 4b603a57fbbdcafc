"""Text files that the command line names: their size has a limit, and errors name the file."""

import io
import sys
from types import SimpleNamespace

import pytest

from kctl.cli import text_files
from kctl.errors import UsageError


def test_a_file_without_an_end_is_refused(kctl, monkeypatch):
    """`kctl apply /dev/zero` read until the memory was full."""
    monkeypatch.setattr(text_files, "TEXT_BYTES_MAX", 10_000)
    for words in (["apply"], ["reassign", "execute"], ["group", "import-offsets"]):
        ran = kctl(*words, "/dev/zero", "-y")
        assert ran.status == 2
        assert ran.err.startswith("error: /dev/zero has more than 10000 bytes\n")


def test_a_binary_file_is_named(kctl, tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"\xba\xff")
    for words in (["apply"], ["reassign", "execute"], ["group", "import-offsets"]):
        assert kctl(*words, path, "-y").err.startswith(f"error: {path} is not a text file\n")


def test_stdin_is_read_without_its_byte_order_mark(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xef\xbb\xbfa\r\nb")))
    assert text_files.read_text_or_stdin("-") == ("stdin", "a\nb")


def test_a_directory_is_an_error_of_its_name(tmp_path):
    with pytest.raises(UsageError, match="Is a directory"):
        text_files.read_text_or_stdin(str(tmp_path))
