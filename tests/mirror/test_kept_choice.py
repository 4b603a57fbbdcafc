"""Which topics a mirror selects is kept in its target, and read as it was written."""

import json

import pytest

from kctl.mirror.kept_choice import NOT_KEPT, decode_choice, encode_choice
from kctl.mirror.mm1_config import parse_files
from kctl.mirror.mm2_config import parse_flow
from kctl.mirror.renames import parse_rename
from kctl.mirror.topics import TopicChoice
from tests.mirror.test_mm2_config import FILE

NAMES = ("orders", "orders-test", "dc2.orders", "B.orders", "heartbeats", "pay", "mm2-x.internal")
MM1 = {"bootstrap.servers": "a:1"}

CHOICES = {
    "patterns": TopicChoice(("ord*", "pay"), ("*-test",), parse_rename("identity")),
    "renamed": TopicChoice(("*",), (), parse_rename("prefix", "dc1"), has_mm2_topics=True),
    "mm1": TopicChoice(
        (), (), parse_rename("copy-{topic}"), 3, parse_files(MM1, MM1, "ord.*, p[a-z]+").topics
    ),
    "mm2": TopicChoice(
        (), (), parse_rename("A.{topic}"), 2,
        parse_flow(FILE | {"topics.exclude": ".*internal,.*test"}).topics, has_mm2_topics=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHOICES)
def test_what_is_kept_selects_and_renames_the_same_topics(kind):
    choice = CHOICES[kind]
    found = decode_choice(encode_choice(choice))
    assert found is not None
    assert [found.selects(it) for it in NAMES] == [choice.selects(it) for it in NAMES]
    assert len({found.selects(it) for it in NAMES}) == 2
    assert [found.rename(it) for it in NAMES] == [choice.rename(it) for it in NAMES]


def test_what_says_nothing_of_the_topics_is_not_guessed():
    good = encode_choice(CHOICES["mm2"])
    assert decode_choice(good + "\0") is not None
    found = json.loads(good)["selects"]
    for broken in (
        found | {"rename": ["copy-of-all", ""]},
        found | {"filter": found["filter"] | {"included": "(?<=x)"}},
        found | {"filter": found["filter"] | {"target": "B"}},
        found | {"filter": []},
        [],
    ):
        assert decode_choice(json.dumps({"kctl-mirror": 1, "selects": broken})) is None
    for text in (NOT_KEPT, "", "{", "[]", json.dumps({"kctl-mirror": 2, "selects": found})):
        assert decode_choice(text) is None
