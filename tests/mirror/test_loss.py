"""When a source has lost records, and when it only looks like it."""

import pytest

from kctl.mirror.loss import LossKind, SourceFacts, judge


@pytest.mark.parametrize(
    ("facts", "kind", "lost", "resume"),
    [
        (SourceFacts(0, 100), None, None, None),
        (SourceFacts(50, 50, (3, 50)), None, None, None),
        (SourceFacts(0, 100, (2, 70)), None, None, None),
        (SourceFacts(60, 100, (3, 100)), LossKind.DELETED, (50, 60), 60),
        (SourceFacts(0, 40), LossKind.TRUNCATED, (40, 50), 40),
        (SourceFacts(0, 90, (2, 45)), LossKind.TRUNCATED, (45, 50), 45),
        (SourceFacts(0, 90, (-1, -1)), LossKind.RECREATED, (50, 50), 0),
        (SourceFacts(0, 90, (3, 90), "other"), LossKind.RECREATED, (50, 50), 0),
        (SourceFacts(0, 90, (3, 90), "id"), None, None, None),
    ],
)
def test_judgement(facts, kind, lost, resume):
    loss = judge(50, 3, "id", facts)

    assert (loss and loss.kind) == kind
    if loss is not None:
        assert (loss.first, loss.end) == lost
        assert loss.resume == resume
        assert loss.text


def test_without_an_epoch_the_range_decides():
    assert judge(50, -1, None, SourceFacts(0, 50, None)) is None
    assert judge(0, -1, None, SourceFacts(10, 20)).kind is LossKind.DELETED
