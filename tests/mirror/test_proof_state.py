"""A proof that is interrupted goes on where it stopped, and ends with the same verdict."""

import json
import multiprocessing
import subprocess
import sys
from functools import partial
from random import Random  # noqa: TID251 - seeded
from time import sleep

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from kctl.cli import app
from kctl.errors import UsageError
from kctl.mirror.places import DirectoryPlace, Loop
from kctl.mirror.proof_state import ProofStates
from kctl.mirror.verification import VerifyRequest, plan_verification, verify_partition
from kctl.records.builder import build_batch
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.trace import NullTrace
from tests.export.log_files import write_segment
from tests.mirror.proof_support import records_of, renumbered

RECORDS = 400
BATCH_RECORDS = 5
SEGMENT_RECORDS = 20
# Every chunk is followed by a write.
STATES = {"bytes_between_writes": 1}


class Interrupted(Exception):
    """The process ends here."""


@pytest.fixture(autouse=True)
def without_fsync(monkeypatch):
    """A test writes hundreds of states, and no power fails."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def write_log(directory, records, partition=0):
    """Write segments of a few batches: each is a chunk for the proof."""
    for first in range(0, len(records), SEGMENT_RECORDS):
        part = records[first : first + SEGMENT_RECORDS]
        batches = [
            bytes(build_batch(part[at : at + BATCH_RECORDS]))
            for at in range(0, len(part), BATCH_RECORDS)
        ]
        write_segment(RealDisk(), directory / f"t-{partition}", part[0].offset, batches)


def faulty(kind, at):
    """Return the records of a target with a fault at the record `at`."""
    records = records_of(RECORDS)
    if kind == "missing":
        del records[at]
    elif kind == "double":
        records.insert(at + 3, records[at])
    elif kind == "late":
        records.insert(min(RECORDS - 1, at + 200), records.pop(at))
    elif kind == "changed":
        records[at] = records[at]._replace(value=b"other")
    return renumbered(records)


def planned(root):
    request = VerifyRequest(
        DirectoryPlace((str(root / "source"),)), DirectoryPlace((str(root / "target"),))
    )
    with Loop(partial(make_runtime, NullTrace())) as loop:
        return plan_verification(request, loop)


def verdict(found):
    differences = found.result.differences
    rows = [
        (it.kind.value, it.source_offset, it.target_offset, it.count, it.fields)
        for it in differences.listed
    ]
    return rows, found.result.equal, found.obstacle, found.deleted_at_source


def interrupted_often(root, state, seed):
    """Compare, and stop after some chunks again and again; return the result and the stops."""
    rng, stops = Random(seed), 0
    while True:
        left = rng.randrange(1, 60 if stops else 20)

        def progress(_more):
            nonlocal left
            left -= 1
            if not left:
                raise Interrupted

        states = ProofStates(str(state), {"proof": 1}, **STATES)
        [task] = states.planned(RealDisk(), planned(root))
        try:
            return states.verify(RealDisk(), task, progress), stops
        except Interrupted:
            stops += 1
            # A run may be stopped before it comes to anything new, but not every one.
            assert stops < 1_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["equal", "missing", "double", "late", "changed"])
def test_an_interrupted_proof_ends_with_the_verdict_of_one_that_was_not(tmp_path, kind):
    write_log(tmp_path / "source", records_of(RECORDS))
    # At the beginning and end of segments, and inside; a double whose original is in another chunk.
    for seed, at in enumerate((0, 199, 310)):
        root = tmp_path / str(at)
        root.mkdir()
        (root / "source").symlink_to(tmp_path / "source")
        write_log(root / "target", faulty(kind, at))
        [task] = planned(root)

        found, stops = interrupted_often(root, root / "state", seed)

        assert verdict(found) == verdict(verify_partition(task))
        assert found.is_equal == (kind == "equal")
        assert stops


def test_what_was_compared_is_not_read_again(tmp_path):
    for side in ("source", "target"):
        write_log(tmp_path / side, records_of(RECORDS))
    states = ProofStates(str(tmp_path / "state"), {}, **STATES)
    [task] = states.planned(RealDisk(), planned(tmp_path))
    seen = []

    def progress(more):
        seen.append(more)
        if sum(seen) > RECORDS:
            raise Interrupted

    with pytest.raises(Interrupted):
        states.verify(RealDisk(), task, progress)
    place = states.place(RealDisk(), task)
    assert place.source_offset == place.target_offset == place.equal
    assert RECORDS // 2 - 2 * SEGMENT_RECORDS < place.equal <= RECORDS // 2
    found = states.verify(RealDisk(), task, lambda _: None)
    assert (found.is_equal, found.result.equal) == (True, RECORDS)
    # The result is that of the first comparison, whatever happened to the files since.
    for path in (tmp_path / "target" / "t-0").iterdir():
        path.unlink()
    assert verdict(states.verify(RealDisk(), task, lambda _: None)) == verdict(found)


def test_records_that_arrive_between_the_runs_are_not_compared(tmp_path):
    for side in ("source", "target"):
        write_log(tmp_path / side, records_of(100))
    states = ProofStates(str(tmp_path / "state"), {})
    [first] = states.planned(RealDisk(), planned(tmp_path))
    write_log(tmp_path / "source", records_of(RECORDS))

    [again] = states.planned(RealDisk(), planned(tmp_path))

    assert again == first
    assert states.verify(RealDisk(), again, lambda _: None).is_equal


def killed(root, state):
    states = ProofStates(str(state), {}, **STATES)
    [task] = states.planned(RealDisk(), planned(root))
    states.verify(RealDisk(), task, lambda _: None)


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_a_state_that_goes_on(tmp_path):
    write_log(tmp_path / "source", records_of(RECORDS))
    write_log(tmp_path / "target", faulty("double", 350))
    [task] = planned(tmp_path)
    state, rng = tmp_path / "state", Random(7)
    for _ in range(12):
        process = multiprocessing.get_context("fork").Process(target=killed, args=(tmp_path, state))
        process.start()
        # Whether it is killed in time does not matter to the verdict.
        sleep(rng.random() / 10)
        process.kill()
        process.join()
        states = ProofStates(str(state), {}, **STATES)
        [again] = states.planned(RealDisk(), planned(tmp_path))
        assert again == task

    assert verdict(states.verify(RealDisk(), again, lambda _: None)) == verdict(
        verify_partition(task)
    )


def test_the_state_of_another_proof_and_other_files_are_refused(tmp_path):
    for side in ("source", "target"):
        write_log(tmp_path / side, records_of(20))
    tasks = planned(tmp_path)
    state = tmp_path / "state"
    ProofStates(str(state), {"name": "a"}).planned(RealDisk(), tasks)
    with pytest.raises(UsageError, match="the state of another proof"):
        ProofStates(str(state), {"name": "b"}).planned(RealDisk(), tasks)
    (state / "t-0.json").write_text("{")
    with pytest.raises(UsageError, match="is not the state of a proof"):
        ProofStates(str(state), {"name": "a"}).planned(RealDisk(), tasks)


@pytest.mark.slow
def test_two_proofs_do_not_share_a_directory(tmp_path, capfdbinary):
    for side in ("source", "target"):
        write_log(tmp_path / side, records_of(20))
    ends = ("--source", str(tmp_path / "source"), "--target", str(tmp_path / "target"))
    state = tmp_path / "state"
    state.mkdir()
    # POSIX locks are those of a process, so another one holds it.
    hold = (
        "import sys; from kctl.runtime.real.disk import RealDisk;"
        "lock = RealDisk().lock(sys.argv[1]); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(state / "proof.lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        other.stdout.readline()
        assert app.run(["mirror", "verify", *ends, "--state", str(state)]) == 1
        assert b"another kctl mirror verify keeps its state here" in capfdbinary.readouterr().err
        assert [it.name for it in state.iterdir()] == ["proof.lock"]
        other.stdin.close()
        other.wait()
        assert app.run(["mirror", "verify", *ends, "--state", str(state)]) == 0


@pytest.mark.slow
def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path, capfdbinary, monkeypatch):
    for side in ("source", "target"):
        for partition in (0, 1):
            write_log(tmp_path / side, records_of(40), partition)
    ends = ("--source", str(tmp_path / "source"), "--target", str(tmp_path / "target"))
    words = ["mirror", "verify", *ends, "--state", str(tmp_path / "state"), "-j", "1"]
    kept = ProofStates.keep_result

    def interrupt(states, disk, found):
        kept(states, disk, found)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ProofStates, "keep_result", interrupt)
        assert app.run(words) == 130
    assert b"the same command goes on" in capfdbinary.readouterr().err
    assert "result" in json.loads((tmp_path / "state" / "t-0.json").read_bytes())
    assert "result" not in json.loads((tmp_path / "state" / "t-1.json").read_bytes())
    assert app.run([*words, "-o", "json"]) == 0
    found = json.loads(capfdbinary.readouterr().out)
    assert [(it["equal"], it["is_equal"]) for it in found] == [(40, True), (40, True)]
    assert app.run([*words, "--name", "m"]) == 2
    assert app.run([*words, "--spark"]) == 2
