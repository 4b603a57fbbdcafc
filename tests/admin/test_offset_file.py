"""Files of committed offsets."""

import pytest

from kctl.admin.offset_file import format_offsets, parse_offsets
from kctl.errors import UsageError
from kctl.model import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 10)


def test_the_offsets_of_one_group_do_not_name_it():
    text = format_offsets({"billing": {SECOND: 7, FIRST: 3}})

    assert text == "orders,0,3\norders,10,7\n"
    assert parse_offsets(text, "f", "billing") == {"billing": {FIRST: 3, SECOND: 7}}


def test_the_offsets_of_several_groups_name_them():
    offsets = {"b": {FIRST: 1}, 'a, "quoted"': {FIRST: 2, SECOND: 2**63 - 1}}
    text = format_offsets(offsets)

    assert text.splitlines()[-1] == "b,orders,0,1"
    assert parse_offsets(text, "f") == offsets


def test_empty_lines_and_blanks_are_ignored():
    assert parse_offsets("\r\n orders , 0 , 3 \r\n\r\n", "f", "g") == {"g": {FIRST: 3}}
    assert parse_offsets("", "f") == {}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("orders,0", "2 fields"),
        ("g,orders,0,1,2", "5 fields"),
        ("orders,0,1", "no group named"),
        (",orders,0,1", "no group named"),
        ("g,,0,1", "no topic named"),
        ("g,orders,x,1", "'x' is not a valid partition"),
        ("g,orders,2147483648,1", "'2147483648' is not a valid partition"),
        ("g,orders,0,-1", "'-1' is not a valid offset"),
        ("g,orders,0,9223372036854775808", "is not a valid offset"),
        ("GROUP,TOPIC,PARTITION,OFFSET", "'PARTITION' is not a valid partition"),
        ("ok,orders,0,5", "orders-0 of group ok appears twice"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(line, fault):
    with pytest.raises(UsageError) as refused:
        parse_offsets(f"ok,orders,0,1\n{line}\n", "offsets.csv")

    assert str(refused.value).startswith("offsets.csv, line 2: ")
    assert fault in str(refused.value)
