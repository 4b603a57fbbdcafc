"""A search for the costliest turn of a broker's loop: what a client sends that makes others wait.

python -m tests.serve.costliest_turn [--minutes 60] [--seed 1] [--kilobytes 64] [--show 20]
python -m tests.serve.costliest_turn --kinds [NAME ...] [--kilobytes 4096]
python -m tests.serve.costliest_turn --sweep [API ...] [--kilobytes 4096]

A candidate is a sequence of requests, valid or not, of at most so many bytes over one connection,
or a kind of client (`costly_kinds`) that may send as much. `--kinds` runs each kind of client once,
or those that are named, each against a new broker. `--sweep` sends each API with each of its
arrays as long as the bytes allow (`costly_sweep`).
The broker runs in this process, its loop on a thread of its own whose clock for turns is the
thread's CPU time: what else the machine does is not counted. The search draws candidates, keeps the
costliest by CPU time of their worst turn, some of each API, and varies those: longer arrays, other
versions, more repetitions, two sequences in one. It prints the costliest, with the callback that
the watchdog named. Times depend on the machine: the first line of the output has the CPU time of a
fixed calculation before and after the search.

A turn that took long once is no find yet: `confirmed` repeats the candidate against new brokers,
after all that their first broker had served before it. Searches for cycles are left out there: they
visit whatever the process of the test has made.
"""

import argparse
import contextlib
import gc
import random  # noqa: TID251 - only ever seeded
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kctl.broker.services import Services
from kctl.protocol.api_keys import ApiKey
from kctl.records.compression import CompressionType
from kctl.runtime.real.heap_freezer import HeapFreezer
from kctl.runtime.watchdog import LoopWatchdog, Noted
from kctl.testing.kafka_broker import KafkaBroker
from tests.protocol.instances import Instances
from tests.protocol.mutations import mutate
from tests.serve import bad_frames, costly_crowd, costly_kinds
from tests.serve.costly_sweep import SPOILERS, Sweep, all_sweeps
from tests.support.files_in_memory import files_in_memory
from tests.support.filled_requests import array_paths, filled
from tests.support.raw_requests import produce_request

# Candidates that are varied, and how many of them begin with the same API.
KEPT = 40
KEPT_PER_API = 3
# A broker that has served so many candidates is replaced: what they left behind adds up.
CANDIDATES_PER_BROKER = 150
CALIBRATION_ADDITIONS = 1_000_000
# How often a find is repeated.
CONFIRMATIONS = 3
# How long an answer is waited for, and how long a broker may take to be at rest again.
ANSWER_S = 0.3
LARGE_BYTES = 128 * 1024
LOGIN_ANSWERS = 2
REST_S = 60
# At rest: nothing to do in so many looks, one after the other.
REST_LOOK_S, REST_LOOKS = 0.02, 5
# Candidates that are a kind of client.
KIND_SHARE = 0.2
# What a request's names are drawn from: what the broker has, and what it has not.
NAMES = ("wide", "log", "zipped", "old", "group", "transaction", "", "absent", "__consumer_offsets")
COUNTS = (0, 1, 10, 100, 1_000, 10_000)
REPEATS = (1, 1, 1, 4, 32, 256, 2_000)
WIDE_PARTITIONS = 300
# Candidates of a client without permissions.
STRANGER_SHARE = 0.15


@dataclass(frozen=True)
class Step:
    """One request, sent `repeats` times."""

    api: ApiKey
    version: int
    # Which of the request's arrays is long, and how long; -1: every field is drawn by `seed`.
    array: int
    count: int
    name: str
    repeats: int = 1
    seed: int = 0
    is_broken: bool = False

    def frame(self) -> bytes:
        """The bytes of one of them."""
        version = min(self.version, self.api.max_version)
        paths = list(array_paths(self.api.request_class, version))
        if self.api is ApiKey.PRODUCE and self.array % 2:
            data = self._produced()
        elif self.array < 0 or not paths:
            rules = {"num_partitions": self.count % 200, "replication_factor": 1, "acks": 1}
            drawn = Instances(self.seed, rules=lambda it: rules.get(it.name))
            data = bad_frames.asked(drawn.message(self.api.request_class, version), version)
        else:
            path = paths[self.array % len(paths)]
            message = filled(self.api.request_class, version, path, self.count, self.name)
            data = bad_frames.asked(message, version)
        if not self.is_broken:
            return data
        body = mutate(data[4:], random.Random(self.seed))
        return struct.pack(">i", len(body)) + body

    def _produced(self) -> bytes:
        codec = self.seed % 5
        count = min(self.count, 10_000) or 1
        value = bytes(1 if self.seed % 2 else 1_000_000 // count)
        records = bytes(bad_frames.batch(count, codec=codec, value=value))
        return bad_frames.asked(produce_request(records, topic=self.name), 7)

    def __str__(self) -> str:
        broken = " broken" if self.is_broken else ""
        what = f"array {self.array} of {self.count}" if self.array >= 0 else f"drawn by {self.seed}"
        return f"{self.repeats} x {self.api.name} v{self.version} {what} {self.name!r}{broken}"


@dataclass
class Candidate:
    """A sequence and what it cost."""

    steps: tuple[Step, ...]
    # A name in `costly_kinds.KINDS` instead of steps, and what it draws with.
    kind: str = ""
    seed: int = 0
    # Instead of both: one API.
    sweep: Sweep | None = None
    is_stranger: bool = False
    bytes_sent: int = 0
    # CPU seconds of the costliest turn, and what the watchdog noted of it.
    worst_seconds: float = 0.0
    noted: tuple[Noted, ...] = field(default=())
    # What its broker had served before it.
    earlier: tuple["Candidate", ...] = field(default=(), repr=False)

    @property
    def family(self) -> object:
        """What is kept only some of."""
        return self.kind or self.sweep or self.steps[0].api

    @property
    def is_spoiler(self) -> bool:
        """Whether the broker is of no use afterwards."""
        if self.sweep is not None:
            return self.sweep.is_spoiler
        return not self.is_stranger and any(step.api in SPOILERS for step in self.steps)

    def run(self, port: int, bytes_max: int) -> None:
        """Send it."""
        if self.kind:
            crowd = costly_crowd.Crowd(port, bytes_max)
            kind = dict(costly_kinds.all_kinds())[self.kind]
            costly_crowd.run(kind, crowd, random.Random(self.seed))
            self.bytes_sent = crowd.sent
        else:
            data = self.data(bytes_max)
            self.bytes_sent = len(data)
            login = costly_crowd.STRANGERS_LOGIN if self.is_stranger else costly_crowd.LOGIN
            send(port, data, login, answer_s_of(self.bytes_sent))

    def data(self, bytes_max: int) -> bytes:
        """All that is sent: whole frames, `bytes_max` in all."""
        if self.sweep is not None:
            return self.sweep.data(bytes_max)
        sent = bytearray()
        for step in self.steps:
            frame = step.frame()
            room = (bytes_max - len(sent)) // len(frame)
            sent += frame * min(step.repeats, room)
        return bytes(sent)

    def __str__(self) -> str:
        what = f"{self.kind} {self.seed}" if self.kind else "; ".join(map(str, self.steps))
        if self.sweep is not None:
            what = str(self.sweep)
        elif self.is_stranger:
            what = f"stranger: {what}"
        ran = ", ".join(f"{words} {spent * 1000:.0f} ms" for spent, words in self.noted[:2])
        return f"{self.worst_seconds * 1000:7.1f} ms {self.bytes_sent:8} B  {what}  [{ran}]"


class TurnRecorder(LoopWatchdog):
    """Remembers the costliest turn since it was last asked, on the thread that makes it."""

    __slots__ = ("_began", "_searching", "_thread", "noted", "worst_seconds", "worst_work_seconds")

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        # The loop reports every turn.
        self.noted_seconds = -1.0
        self._thread = threading.get_ident()
        self._began = self._searching = 0.0
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        self.worst_seconds, self.noted = 0.0, ()
        # Without searches for cycles.
        self.worst_work_seconds = 0.0

    def turn_ended(self, seconds: float, noted: object) -> None:
        """Called for every turn here."""
        work_seconds, self._searching = seconds - self._searching, 0.0
        self.worst_work_seconds = max(self.worst_work_seconds, work_seconds)
        if seconds > self.worst_seconds:
            self.worst_seconds, self.noted = seconds, tuple(noted)  # type: ignore[arg-type]

    def on_search(self, phase: str, _info: Mapping[str, int]) -> None:
        """Called before and after each search for cycles, on the thread that makes it."""
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._began = time.thread_time()
        else:
            self._searching += time.thread_time() - self._began


class CostSearch:
    """Draws and varies candidates against one broker after the other."""

    def __init__(self, seed: int, bytes_max: int) -> None:
        self.random = random.Random(seed)
        self.bytes_max = bytes_max
        self.kept: list[Candidate] = []
        self.tried = 0
        self._apis = list(ApiKey)

    def run(self, rounds: int | None = None, seconds: float | None = None) -> list[Candidate]:
        """Try candidates, `rounds` of them or for so long; the costliest, first the worst."""
        end_s = None if seconds is None else time.monotonic() + seconds
        while rounds is None or self.tried < rounds:
            with measured_broker() as (broker, recorder):
                served: list[Candidate] = []
                for _ in range(CANDIDATES_PER_BROKER):
                    is_late = end_s is not None and time.monotonic() > end_s
                    if is_late or self.tried == rounds:
                        return self.kept
                    candidate = self._next()
                    candidate.earlier = tuple(served)
                    served.append(candidate)
                    self._try(candidate, broker, recorder)
                    if candidate.is_spoiler:
                        break
        return self.kept

    def _next(self) -> Candidate:
        if self.random.random() < KIND_SHARE:
            kind = self.random.choice(list(costly_kinds.KINDS))
            return Candidate((), kind, self.random.randrange(1 << 16))
        if not self.kept or self.random.random() < 0.4:
            return Candidate((self._step(),), is_stranger=self.random.random() < STRANGER_SHARE)
        # Those at the front more often.
        place = min(int(self.random.expovariate(0.2)), len(self.kept) - 1)
        chosen = self.kept[place]
        if chosen.kind:
            return Candidate((), chosen.kind, self.random.randrange(1 << 16))
        return self._varied(chosen)

    def _step(self) -> Step:
        draw = self.random
        api = draw.choice(self._apis)
        return Step(
            api, draw.randint(0, api.max_version), draw.randint(-1, 5), draw.choice(COUNTS),
            draw.choice(NAMES), draw.choice(REPEATS), draw.randrange(1 << 16), draw.random() < 0.1,
        )  # fmt: skip

    def _varied(self, candidate: Candidate) -> Candidate:
        draw, steps = self.random, list(candidate.steps)
        place = draw.randrange(len(steps))
        step = steps[place]
        match draw.randrange(7):
            case 0:
                step = replace(step, count=step.count * 2 + 1)
            case 1:
                step = replace(step, repeats=step.repeats * 2)
            case 2:
                step = replace(step, version=draw.randint(0, step.api.max_version))
            case 3:
                step = replace(step, name=draw.choice(NAMES))
            case 4:
                step = replace(step, seed=draw.randrange(1 << 16), array=draw.randint(-1, 5))
            case 5:
                step = replace(step, repeats=max(step.repeats // 8, 1), count=step.count // 2)
            case _:
                steps.append(draw.choice(draw.choice(self.kept).steps or [step]))
        steps[place] = step
        return Candidate(tuple(steps[:6]), is_stranger=candidate.is_stranger)

    def _try(self, candidate: Candidate, broker: KafkaBroker, recorder: TurnRecorder) -> None:
        self.tried += 1
        with contextlib.suppress(ValueError, struct.error, OverflowError):
            # A count that the field cannot say.
            measure(candidate, self.bytes_max, broker, recorder)
            self._keep(candidate)

    def _keep(self, candidate: Candidate) -> None:
        self.kept.append(candidate)
        self.kept.sort(key=lambda each: -each.worst_seconds)
        kept: list[Candidate] = []
        for each in self.kept[: KEPT + 1]:
            if sum(other.family == each.family for other in kept) < KEPT_PER_API:
                kept.append(each)
        self.kept = kept[:KEPT]


def send(port: int, data: bytes, login: bytes = b"", answer_s: float = ANSWER_S) -> None:
    """Log in, if there is a login; send `data`, and read until nothing comes for `answer_s`."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), REST_S) as peer,
    ):
        # What is longer than a login may only be sent after it.
        peer.sendall(login)
        for _ in range(LOGIN_ANSWERS if login else 0):
            size = int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big")
            peer.recv(size, socket.MSG_WAITALL)
        peer.settimeout(answer_s)
        view = memoryview(data)
        while view:
            view = view[peer.send(view[: 1 << 16]) :]
        while peer.recv(1 << 20):
            pass


def answer_s_of(sent: int) -> float:
    """Return how long to wait for the answer to so many bytes: work ends with its client."""
    return ANSWER_S * max(sent // LARGE_BYTES, 1)


def measure(
    candidate: Candidate, bytes_max: int, broker: KafkaBroker, recorder: TurnRecorder
) -> None:
    """Run `candidate`, and note its costliest turn up to when the broker is at rest again; that of
    a candidate that sends nothing would be of something else."""
    recorder.reset()
    candidate.run(broker.port, bytes_max)
    until_at_rest(broker)
    if candidate.bytes_sent:
        candidate.worst_seconds, candidate.noted = recorder.worst_seconds, recorder.noted


def until_at_rest(broker: KafkaBroker) -> None:
    """Wait until the loop has nothing to do. It says so itself: a machine under load may not let it
    run for a while, and then its clock stands still, too."""
    end_s = time.monotonic() + REST_S
    looks = 0
    while looks < REST_LOOKS and time.monotonic() < end_s:
        time.sleep(REST_LOOK_S)
        looks = looks + 1 if broker._call(_is_idle, broker._services()) else 0


def _is_idle(services: Services) -> bool:
    """Return whether only this function runs, on the loop or for it."""
    loop: Any = services.runtime.scheduler
    now_ms = services.runtime.clock.monotonic_ms()
    is_due = any(when_ms <= now_ms and timer.callback for when_ms, _, timer in loop._timers)
    return not (loop._ready or loop._bulk or loop._unserved or loop._jobs_pending or is_due)


def confirmed(candidate: Candidate, bytes_max: int, over_seconds: float) -> float:
    """Return the CPU seconds of the worst turn of `candidate`, or of the one before it, that are
    exceeded in each of CONFIRMATIONS repetitions; as soon as one is under `over_seconds`, those of
    it. Each has a new broker, which first serves what the first one had served."""
    least = float("inf")
    for _ in range(CONFIRMATIONS):
        least = min(least, _repeated(candidate, bytes_max))
        if least <= over_seconds:
            break
    return least


def _repeated(candidate: Candidate, bytes_max: int) -> float:
    with measured_broker() as (broker, recorder):
        for each in candidate.earlier[:-1]:
            with contextlib.suppress(ValueError, struct.error, OverflowError):
                measure(replace(each), bytes_max, broker, recorder)
        worst = 0.0
        for each in (*candidate.earlier[-1:], candidate):
            with contextlib.suppress(ValueError, struct.error, OverflowError):
                measure(replace(each), bytes_max, broker, recorder)
                worst = max(worst, recorder.worst_work_seconds)
        return worst


def calibrated_ms() -> float:
    """Return the CPU milliseconds of a fixed calculation on this machine, just now."""
    began, total = time.thread_time(), 0
    for number in range(CALIBRATION_ADDITIONS):
        total += number
    return (time.thread_time() - began) * 1000


@contextlib.contextmanager
def measured_broker() -> Iterator[tuple[KafkaBroker, TurnRecorder]]:
    """A broker with some data, whose loop measures turns in CPU time and reports each."""
    thresholds = gc.get_threshold()
    users = dict.fromkeys((costly_crowd.USER, costly_crowd.STRANGER), costly_crowd.PASSWORD)
    with files_in_memory(), KafkaBroker(users=users, settings=costly_crowd.SETTINGS) as broker:
        fill(broker)
        recorders: list[TurnRecorder] = []
        # Searches for cycles are kept short as in `kctl serve`.
        freezer = HeapFreezer(broker._services().runtime.scheduler)

        def measure(services: Services) -> None:
            scheduler = services.runtime.scheduler
            recorder = TurnRecorder(services.runtime.clock)
            recorders.append(recorder)
            scheduler.watchdog = recorder  # type: ignore[misc]
            scheduler._now = time.thread_time  # type: ignore[attr-defined]
            freezer.start()
            gc.callbacks.append(recorder.on_search)

        try:
            broker._call(measure, broker._services())
            yield broker, recorders[0]
        finally:
            for recorder in recorders:
                gc.callbacks.remove(recorder.on_search)
            freezer.stop()
            gc.unfreeze()
            gc.set_threshold(*thresholds)


def fill(broker: KafkaBroker) -> None:
    """Topics that old, slow and wide requests can be about."""
    broker.create_topic("wide", WIDE_PARTITIONS)
    broker.create_topic("log")
    broker.create_topic("old", configs={"message.format.version": "0.10.2"})
    broker.create_topic("zipped", configs={"compression.type": "zstd"})
    plain = bytes(bad_frames.batch(5_000, value=b""))
    zipped = bytes(bad_frames.batch(20_000, codec=CompressionType.ZSTD, value=bytes(100)))
    for records, topic in ((plain, "log"), (plain, "old"), (zipped, "log"), (zipped, "zipped")):
        for _ in range(10):
            request = bad_frames.asked(produce_request(records, topic=topic), 7)
            send(broker.port, request, costly_crowd.LOGIN)


def main() -> None:
    """Search by hand."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kilobytes", type=int, default=64)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--kinds", nargs="*")
    parser.add_argument("--sweep", nargs="*")
    options = parser.parse_args()
    calibrations_ms = [calibrated_ms()]
    if options.sweep is not None:
        costliest = run_sweeps(options.sweep, options.kilobytes * 1024)
    elif options.kinds is None:
        search = CostSearch(options.seed, options.kilobytes * 1024)
        costliest = search.run(seconds=options.minutes * 60)
    else:
        names = options.kinds or [name for name, _ in costly_kinds.all_kinds()]
        costliest = list(run_kinds(names, options.seed, options.kilobytes * 1024))
    calibrations_ms.append(calibrated_ms())
    before_ms, after_ms = calibrations_ms
    sys.stdout.write(f"a million additions: {before_ms:.0f} ms before, {after_ms:.0f} ms after\n")
    for candidate in costliest[: options.show]:
        sys.stdout.write(f"{candidate}\n")


def run_kinds(names: list[str], seed: int, bytes_max: int) -> Iterator[Candidate]:
    """Measure each kind of client against a broker of its own."""
    for name in names:
        candidate = Candidate((), name, seed)
        with measured_broker() as (broker, recorder):
            measure(candidate, bytes_max, broker, recorder)
        sys.stderr.write(f"{candidate}\n")
        yield candidate


def run_sweeps(names: list[str], bytes_max: int) -> list[Candidate]:
    """Measure each request of each API, or of those that are named; the costliest first."""
    left = [sweep for sweep in all_sweeps() if not names or sweep.api.name in names]
    done: list[Candidate] = []
    while left:
        with measured_broker() as (broker, recorder):
            for _ in range(CANDIDATES_PER_BROKER):
                candidate = Candidate((), sweep=left.pop(0))
                candidate.is_stranger = candidate.sweep.is_stranger
                measure(candidate, bytes_max, broker, recorder)
                sys.stderr.write(f"{candidate}\n")
                done.append(candidate)
                if candidate.is_spoiler or not left:
                    break
    return sorted(done, key=lambda candidate: -candidate.worst_seconds)


if __name__ == "__main__":
    main()
