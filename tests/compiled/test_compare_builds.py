"""The comparison of the builds: which seeds it plays, and what it says."""

import pytest

from tools import compare_builds


@pytest.fixture
def played(monkeypatch, tmp_path):
    """The blocks of seeds that are played; seed 7 differs between the builds."""
    (tmp_path / "kctl").mkdir()
    blocks = []

    def digests(_tree, first, last, pure):
        blocks.append((first, last, pure))
        return {seed: f"{seed:031}{pure if seed == 7 else 'a'}" for seed in range(first, last + 1)}

    monkeypatch.setattr(compare_builds, "digests", digests)
    monkeypatch.setattr(compare_builds, "check_builds", lambda _tree: None)
    return blocks


def shown(capsys, tmp_path, seeds):
    status = compare_builds.main(["--compiled", str(tmp_path), "--seeds", seeds])
    return status, capsys.readouterr().out.splitlines()


def test_a_seed_that_differs_has_a_line_of_its_own(capsys, tmp_path, played):
    status, lines = shown(capsys, tmp_path, "4-8")
    assert status == 1
    assert lines == [
        f"seed 7 DIFFERS: compiled {7:031}0, pure {7:031}1",
        "5 seeds compared, up to 8; 1 differ",
    ]


def test_another_run_continues_behind_the_seeds_that_were_compared(capsys, tmp_path, played):
    shown(capsys, tmp_path, "0-1")
    with (tmp_path / "digests.txt").open("a") as file:
        file.write("\n2 0123")
    played.clear()
    status, lines = shown(capsys, tmp_path, "0-6")
    assert status == 0
    assert [block[:2] for block in played] == [(2, 6), (2, 6)]
    assert lines[-1] == "7 seeds compared, up to 6; 0 differ"
    played.clear()
    assert shown(capsys, tmp_path, "0-6") == (0, ["7 seeds compared, up to 6; 0 differ"])
    assert played == []


def test_a_build_that_fails_is_no_difference(capsys, tmp_path, monkeypatch):
    (tmp_path / "kctl").mkdir()

    def failing(*_words, **_options):
        raise compare_builds.BuildError("no module named kctl")

    monkeypatch.setattr(compare_builds, "run", failing)
    assert shown(capsys, tmp_path, "0") == (2, ["error: no module named kctl"])
