"""What a mirror creates and changes in the target, and what it refuses."""

import pytest

from kctl.errors import UsageError
from kctl.mirror.mirror_plan import Step, TopicFacts, plan_topics
from kctl.mirror.renames import parse_rename
from kctl.mirror.topics import TopicChoice, chosen

IDENTITY = parse_rename("identity")


def only(source, *targets, rename=IDENTITY, **more):
    [plan] = plan_topics([source], {each.name: each for each in targets}, rename, **more)
    return plan


def test_a_new_topic_gets_partitions_and_settings_but_not_those_of_the_cluster():
    source = TopicFacts("t", 3, {"retention.ms": "1", "min.insync.replicas": "2"})

    plan = only(source)

    assert (plan.step, plan.partitions, plan.configs) == (Step.CREATE, 3, {"retention.ms": "1"})


def test_settings_are_left_out_on_request():
    source = TopicFacts("t", 3, {"retention.ms": "1", "remote.storage.enable": "true"})

    assert only(source, exclude_configs=("remote.*",)).configs == {"retention.ms": "1"}


def test_an_existing_topic_is_kept_in_step_and_keeps_settings_of_its_own():
    source = TopicFacts("t", 3, {"retention.ms": "1", "segment.ms": "5"})

    plan = only(source, TopicFacts("t", 2, {"retention.ms": "9", "segment.ms": "5", "x": "y"}))

    assert (plan.step, plan.adds_partitions, plan.configs) == (
        Step.CHANGE, True, {"retention.ms": "1"},
    )  # fmt: skip
    assert only(source, TopicFacts("t", 3, source.configs)).step is Step.KEEP


def test_what_would_lose_records_is_refused():
    assert "4 partitions" in only(TopicFacts("t", 3), TopicFacts("t", 4)).reason
    assert "same topic" in only(TopicFacts("t", 3), is_same_cluster=True).reason
    clash = plan_topics([TopicFacts("a", 1), TopicFacts("b", 1)], {}, lambda _: "x")
    assert [plan.step for plan in clash] == [Step.CREATE, Step.REFUSE]


def test_a_topic_with_unreadable_settings_is_not_created_with_other_ones():
    source = TopicFacts("t", 3, unreadable="not authorized")

    assert "cannot be read (not authorized)" in only(source).reason
    assert only(source, TopicFacts("t", 3, {"x": "y"})).step is Step.KEEP


def test_internal_topics_and_maps_are_never_chosen():
    names = ("orders", "__consumer_offsets", "kctl-mirror.a.map", "order-items", "x")
    topics = [TopicFacts(name, 1) for name in names]

    assert [t.name for t in chosen(topics, TopicChoice(("*",), ("x",), IDENTITY).selects)] == [
        "order-items",
        "orders",
    ]
    assert [
        t.name for t in chosen(topics, TopicChoice(("orders", "x*"), (), IDENTITY).selects)
    ] == ["orders", "x"]


def test_renames():
    assert parse_rename("identity")("t") == "t"
    assert parse_rename("prefix", "dc1")("t") == "dc1.t"
    assert parse_rename("{source}-{topic}-copy", "dc1")("t") == "dc1-t-copy"
    for wrong in ("prefix", "copy", "{topic:>9}", "{other}.{topic}", "{topic"):
        with pytest.raises(UsageError):
            parse_rename(wrong)
