"""Faults on clusters under load: no acknowledged record is lost, duplicated or out of order.

Each cell is a system, a fault or two that meet, and modes of clients, all at once by default; it
starts a cluster of its own. Systems: K1 is one kctl, K3 three kctl on a ZooKeeper, X two brokers of
Apache Kafka 2.7.2 and one of kctl, M one of Apache Kafka and two of kctl, J three of Apache Kafka.
Modes: A acks=1, B acks=all, C idempotent, D transactions and copiers, G a group of static members,
I idempotent with a producer for each partition. Cells are played until the time is up; one in
four is a pair of faults. The seed is in each row, and plays the cell again.

Examples:
  make torture
  python -m tests.torture --minutes 30 --system K3 --mode CD
  python -m tests.torture --list
  python -m tests.torture --system K3 --fault F4 --mode ABCDG --seed 17
  python -m tests.torture --system X --fault F2+F6 --seed 1017
  python -m tests.torture --system M --fault F17 --mode CI --seed 1 --count 100
"""

import argparse
import itertools
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random  # noqa: TID251 - the seed enters here

from tests.torture import modes
from tests.torture.cells import Cell, play, text_of
from tests.torture.faults import FAULTS
from tests.torture.modes import MODES
from tests.torture.systems import SYSTEMS

# Those of which all cells are played unless others are named.
DRAWN_SYSTEMS = ("K1", "K3", "X")
PAIRS_EVERY = 4
# After these the last acknowledgement gap is held against the session time-out.
KILLED = ({"F1"}, {"F2"})


def main(words=None):
    """The exit status: 1 if a cell failed."""
    options = parsed(words)
    if options.debug:
        modes.debug_idempotent(options.debug)
    systems = options.system or (SYSTEMS if options.list else DRAWN_SYSTEMS)
    singles = [
        Cell(system, (fault,), options.mode, 0)
        for fault in FAULTS
        for system in systems
        if not options.fault or fault in options.fault
    ]
    impossible = [(cell, reason) for cell in singles if (reason := cell.why_not())]
    for cell, reason in impossible:
        say(f"not possible: {cell.system} {cell.faults[0]} {FAULTS[cell.faults[0]].name}: {reason}")
    possible = [cell for cell in singles if cell.why_not() is None]
    if options.list:
        for cell in possible:
            say(f"{cell.system} {cell.faults[0]} {FAULTS[cell.faults[0]].name}")
        return 0
    cells = replayed(options, possible) if options.seed is not None else drawn(possible)
    return play_all(cells, time.monotonic() + 60 * options.minutes)


def parsed(words):
    parser = argparse.ArgumentParser(
        "python -m tests.torture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    comma = {"type": lambda text: text.split(",")}
    parser.add_argument("--minutes", type=float, default=180, help="of time [default: 180]")
    parser.add_argument("--fault", **comma, help="F1,F7, or a pair with --seed: F1+F7")
    parser.add_argument("--mode", default="ABCDG", help="of clients [default: %(default)s]")
    parser.add_argument("--system", **comma, help="K1,K3,X,M,J [default: K1,K3,X]")
    parser.add_argument("--seed", type=int, help="play each cell once, with this seed")
    parser.add_argument(
        "--count", type=int, default=1, help="play each cell so often, with --seed and those after"
    )
    parser.add_argument(
        "--debug",
        metavar="CONTEXTS",
        help="what librdkafka logs of idempotent producers to stderr: eos,msg",
    )
    parser.add_argument("--list", action="store_true", help="what can be played here, what not")
    options = parser.parse_args(words)
    names = {it for pair in options.fault or () for it in pair.split("+")}
    for given, known in ((names, FAULTS), (options.mode, MODES), (options.system or (), SYSTEMS)):
        if unknown := set(given) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
    return options


def replayed(options, possible):
    """Each cell that is asked for, with each of the seeds."""
    for seed in range(options.seed, options.seed + options.count):
        for cell in possible:
            yield Cell(cell.system, cell.faults, cell.modes, seed)
        for pair in options.fault or ():
            for system in options.system or DRAWN_SYSTEMS:
                if "+" in pair:
                    yield Cell(system, tuple(pair.split("+")), options.mode, seed)


def drawn(possible):
    """Without end: all cells in an order drawn, pairs among them, then all again."""
    first = time.time_ns() // 1_000_000_000 % 1_000_000
    chance = Random(first)
    seeds = itertools.count(first)
    while possible:
        for number, cell in enumerate(chance.sample(possible, len(possible))):
            yield Cell(cell.system, cell.faults, cell.modes, next(seeds))
            if number % (PAIRS_EVERY - 1) == 0:
                yield Cell(*a_pair(cell, possible, chance), cell.modes, next(seeds))


def a_pair(cell, possible, chance):
    """(system, two faults that can meet there)."""
    others = [it.faults[0] for it in possible if it.system == cell.system]
    pairs = [(cell.faults[0], other) for other in others if other != cell.faults[0]]
    good = [it for it in pairs if Cell(cell.system, it, cell.modes, 0).why_not() is None]
    return cell.system, chance.choice(good or [cell.faults])


def play_all(cells, deadline):
    """A row for each, and the sum in the end."""
    # As Ctrl-C: what a cell has started and made goes with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rows = []
    for cell in cells:
        if time.monotonic() > deadline:
            break
        if reason := cell.why_not():
            say(f"not possible: {cell}: {reason}")
            continue
        directory = Path(tempfile.mkdtemp(prefix="kctl-torture-"))
        row = play(cell, directory)
        say(text_of(row))
        if row.is_good:
            shutil.rmtree(directory)
        else:
            say(f"     kept: {directory}")
        rows.append(row)
    failed = sum(not row.is_good for row in rows)
    summary(rows)
    say(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


def summary(rows):
    """What all cells have together, and how long nothing was acknowledged after a kill -9."""
    acknowledged = sum(row.acknowledged for row in rows)
    transactions = sum(row.transactions for row in rows)
    say(f"{acknowledged} acknowledged, {transactions} transactions")
    resent, without_offset = sum(row.resent for row in rows), sum(it.without_offset for it in rows)
    say(f"{resent} resent by clients, {without_offset} acknowledged without an offset")
    killed = [row for row in rows if set(row.cell.faults) in KILLED and row.cell.system != "K1"]
    if killed:
        gaps = sorted(row.gap_s for row in killed)
        late = sum(row.is_late for row in killed)
        say(
            f"gaps after kill -9 of a leader or controller: median {gaps[len(gaps) // 2]:.2f} s, "
            f"at most {gaps[-1]:.2f} s; {late} of {len(gaps)} above session time-out + 0.5 s"
        )


def say(text):
    """Print at once: a run takes hours and its progress should show."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
