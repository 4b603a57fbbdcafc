"""`python -m kctl.testing.simulate`: plays seeds, reports violations, tells how to replay them.

python -m kctl.testing.simulate --seed 17            one seed; its last events if it fails
python -m kctl.testing.simulate --seeds 0-999 --jobs 2
python -m kctl.testing.simulate --seed 17 --digest   what happened, in 32 digits
python -m kctl.testing.simulate --seeds 0-999 --transactions   with transactions in every seed
"""

import sys
from argparse import ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing import get_context

from kctl.runtime.real.clock import RealClock
from kctl.testing.simulation import Outcome, Simulation

TRACE_LINES_SHOWN = 60
# How to tell the command again.
FORCED = {None: "", True: " --transactions", False: " --no-transactions"}


def play(seed: int, has_transactions: bool | None = None) -> Outcome:
    """One seed, from beginning to end; it draws by itself what it is not told."""
    return Simulation(seed, has_transactions=has_transactions).run()


def play_all(
    seeds: Iterable[int], jobs: int, has_transactions: bool | None = None
) -> Iterator[Outcome]:
    """Every seed, by so many processes, in their order."""
    play_one = partial(play, has_transactions=has_transactions)
    if jobs <= 1:
        yield from map(play_one, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(play_one, seeds, chunksize=4)


def report(outcome: Outcome, lines: int, options: str = "") -> str:
    """What went wrong, what came before it, and how to see it again."""
    return "\n".join(
        [
            f"seed {outcome.seed}: VIOLATION: {outcome.violation}",
            f"  after {outcome.events} events, {outcome.virtual_ms} virtual ms",
            f"  plan: {outcome.plan}",
            *(f"  {line}" for line in outcome.trace[-lines:]),
            f"replay: python -m kctl.testing.simulate --seed {outcome.seed}{options}",
        ]
    )


def summary(outcomes: list[Outcome], elapsed_ms: int) -> str:
    """Totals over all seeds."""
    totals: dict[str, int] = {}
    for outcome in outcomes:
        for name, count in outcome.counters.items():
            totals[name] = totals.get(name, 0) + count
    events = sum(outcome.events for outcome in outcomes)
    virtual_s = sum(outcome.virtual_ms for outcome in outcomes) / 1000
    failed = [outcome.seed for outcome in outcomes if outcome.violation is not None]
    seconds = max(elapsed_ms, 1) / 1000
    width = max(map(len, totals), default=0)
    return "\n".join(
        [
            f"{len(outcomes)} seeds, {len(failed)} with a violation {failed or ''}".rstrip(),
            f"{events:,} events, {virtual_s:,.0f} virtual seconds",
            f"{seconds:.1f} s: {events / seconds:,.0f} events/s",
            *(f"  {name:{width}} {count:>12,}" for name, count in totals.items()),
        ]
    )


def seeds_of(text: str) -> range:
    """`7` or `0-999`, both ends included."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 if any seed shows a violation."""
    parser = ArgumentParser(
        prog="python -m kctl.testing.simulate",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", "--seeds", default="0", help="a seed, or FIRST-LAST")
    parser.add_argument("--jobs", type=int, default=1, help="processes to play with")
    parser.add_argument("--lines", type=int, default=TRACE_LINES_SHOWN, help="of trace to show")
    parser.add_argument("--digest", action="store_true", help="show each seed's digest")
    parser.add_argument("--trace", action="store_true", help="show the trace of good seeds too")
    parser.add_argument(
        "--transactions",
        action=BooleanOptionalAction,
        help="whether transactional clients take part; else each seed draws it",
    )
    options = parser.parse_args(arguments)
    clock = RealClock()
    started_ms = clock.monotonic_ms()
    outcomes = []
    for outcome in play_all(seeds_of(options.seed), options.jobs, options.transactions):
        outcomes.append(outcome)
        if outcome.violation is not None or options.trace:
            _say(report(outcome, options.lines, FORCED[options.transactions]))
        if options.digest:
            _say(f"seed {outcome.seed}: {outcome.digest}")
        # The trace has been shown; thousands of them need not be kept.
        outcome.trace.clear()
    _say(summary(outcomes, clock.monotonic_ms() - started_ms))
    return 1 if any(outcome.violation is not None for outcome in outcomes) else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
