"""Characters at which `str.splitlines` ends a line, which belong to names, passwords and values."""

import pytest

from kctl.admin.offset_file import format_offsets, parse_offsets
from kctl.admin.zookeeper_offset_file import format_zookeeper_offsets, parse_zookeeper_offsets
from kctl.cli.profile.editing import with_default, with_settings, without_profile
from kctl.cli.profile.secrets import resolve_secrets
from kctl.configs.broker_config import parse_properties
from kctl.lines import split_kept_lines, split_lines
from kctl.model import TopicPartition
from kctl.runtime.real.mounts import parse_mounts
from kctl.storage.meta_properties import decode_meta_properties
from kctl.store.consumer_znodes import ConsumedPartition

INSIDE = ("\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
NAME = "a" + "b".join(INSIDE) + "c"


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\r\nb\rc\n\nd", f"{NAME}\n{NAME}"])
def test_lines_end_as_a_reader_of_files_ends_them(text, tmp_path):
    (tmp_path / "f").write_text(text, newline="")
    with (tmp_path / "f").open() as file:
        assert split_lines(text) == [line.removesuffix("\n") for line in file]
    assert "".join(split_kept_lines(text)) == text
    assert [it.rstrip("\r\n") for it in split_kept_lines(text)] == split_lines(text)


def test_files_of_offsets_keep_the_names_of_groups():
    offsets = {NAME: {TopicPartition("t", 0): 1}, "g": {TopicPartition("t", 0): 2}}
    assert parse_offsets(format_offsets(offsets), "f") == offsets
    in_zookeeper = {NAME: {ConsumedPartition("t", 0): 1}}
    text = format_zookeeper_offsets(in_zookeeper)
    assert parse_zookeeper_offsets(text.replace("\n", "\r\n"), "f") == in_zookeeper


def test_a_password_is_all_of_the_first_line(tmp_path):
    (tmp_path / "secret").write_text(f"{NAME}\r\nsecond line\n")
    given = {"sasl.password_file": str(tmp_path / "secret")}
    assert resolve_secrets(given, {}) == {"sasl.password": NAME}


def test_properties_keep_their_values():
    assert parse_properties("a=1\x852\r\nb=3\x1c\x0c4\n") == {"a": "1\x852", "b": "3\x1c\x0c4"}
    data = b"version=0\nbroker.id=1\ncluster.id=a\x85b\n"
    assert decode_meta_properties(data, "f").cluster_id == "a\x85b"


def test_a_profile_is_edited_around_a_value_that_looks_like_a_header():
    text = '[profiles.a]\nnote = "x\u2028[profiles.b]"\n\n[profiles.b]\nbootstrap = "h:1"\n'
    assert 'note = "x\u2028[profiles.b]"' in with_settings(text, "a", [], {"k": "v"})
    assert without_profile(text, "b").count("profiles.b") == 1
    assert text in with_default(text, "a")


def test_mounts_keep_their_directories():
    line = f"1 0 8:1 / /data/{NAME} rw - ext4 /dev/sda1 rw"
    [mount] = parse_mounts(line + "\n")
    assert mount.point == f"/data/{NAME}"
