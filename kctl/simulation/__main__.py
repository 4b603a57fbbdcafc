"""`python -m kctl.simulation`: plays seeds, reports violations and how to replay them.

python -m kctl.simulation --seed 17            one seed; its last events if it fails
python -m kctl.simulation --seeds 0-999 --jobs 2
python -m kctl.simulation --seed 17 --digest   the digest of all events, 32 hexadecimal digits
python -m kctl.simulation --seeds 0-999 --transactions   with transactions in every seed
python -m kctl.simulation --seeds 0-999 --pipelined      pipelined producers in every seed
python -m kctl.simulation --seeds 0-999 --secured        authentication and ACLs in every seed
"""

import sys
from argparse import ArgumentParser, BooleanOptionalAction, RawDescriptionHelpFormatter

from kctl.runtime.real.clock import RealClock
from kctl.simulation.play import play_all
from kctl.simulation.simulation import Outcome

TRACE_LINES_SHOWN = 60


def report(outcome: Outcome, lines: int, options: str = "") -> str:
    """Return what went wrong, the last trace lines, and the command that replays the seed."""
    return "\n".join(
        [
            f"seed {outcome.seed}: VIOLATION: {outcome.violation}",
            f"  after {outcome.events} events, {outcome.virtual_ms} virtual ms",
            f"  plan: {outcome.plan}",
            *(f"  {line}" for line in outcome.trace[-lines:]),
            f"replay: python -m kctl.simulation --seed {outcome.seed}{options}",
        ]
    )


def summary(outcomes: list[Outcome], elapsed_ms: int) -> str:
    """Return totals over all seeds."""
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
    """Parse `7` or `0-999`, both ends inclusive."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 1 if any seed shows a violation."""
    parser = ArgumentParser(
        prog="python -m kctl.simulation",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", "--seeds", default="0", help="a seed, or FIRST-LAST")
    parser.add_argument("--jobs", type=int, default=1, help="processes to play with")
    parser.add_argument("--lines", type=int, default=TRACE_LINES_SHOWN, help="of the trace to show")
    parser.add_argument("--digest", action="store_true", help="show each seed's digest")
    parser.add_argument("--trace", action="store_true", help="show the trace of passing seeds, too")
    parser.add_argument(
        "--transactions",
        action=BooleanOptionalAction,
        help="whether transactional clients take part; else each seed draws it",
    )
    parser.add_argument(
        "--pipelined",
        action=BooleanOptionalAction,
        help="whether producers with several batches in flight take part; else each seed draws it",
    )
    parser.add_argument(
        "--secured",
        action=BooleanOptionalAction,
        help="whether clients authenticate and ACLs change; else each seed draws it",
    )
    options = parser.parse_args(arguments)
    clock = RealClock()
    started_ms = clock.monotonic_ms()
    outcomes = []
    forced = {
        "transactions": options.transactions,
        "pipelined": options.pipelined,
        "secured": options.secured,
    }
    replay = "".join(
        f" --{'' if value else 'no-'}{name}" for name, value in forced.items() if value is not None
    )
    seeds = seeds_of(options.seed)
    for outcome in play_all(seeds, options.jobs, *forced.values()):
        outcomes.append(outcome)
        if outcome.violation is not None or options.trace:
            _say(report(outcome, options.lines, replay))
        if options.digest:
            _say(f"seed {outcome.seed}: {outcome.digest}")
        # The trace has been shown; free its memory.
        outcome.trace.clear()
    _say(summary(outcomes, clock.monotonic_ms() - started_ms))
    return 1 if any(outcome.violation is not None for outcome in outcomes) else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
