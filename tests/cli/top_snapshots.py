"""Records the screens of kctl top: `python -m tests.cli.top_snapshots` writes them again."""

from collections.abc import Iterator
from pathlib import Path

from kctl.cli.top.screen import DETAIL_COLUMNS, Screen, View

RECORDED = Path(__file__).parent / "screens"
WIDTHS = (80, 120, 200)
HEIGHT = 12
LONG = "orders.eu-central-1.payments." + "a-name-as-long-as-kafka-allows-" * 6
HOSTILE = "evil\nname\x1b[2J\u202e\"quoted'\x9b31m"
ROWS = {
    View.TOPICS: [
        {"topic": name, "partitions": 12, "records_s": rate, "bytes_s": rate and rate * 1000,
         "size": 1_500_000_000}
        for name, rate in (("clicks", 125_000.0), (LONG, 12.5), (HOSTILE, 0.0), ("new", None))
    ],
    View.GROUPS: [
        {"group": name, "state": "Stable", "members": 3, "records_s": 99.9, "lag": lag}
        for name, lag in (("billing", 1_234_567), (LONG, 0), (HOSTILE, 12), ("idle", None))
    ],
    View.BROKERS: [
        {"broker": number, "host": f"broker-{number}.kafka.internal.example.com:9092", "rack": "a",
         "leaders": 34, "replicas": 102, "records_s": 5000.0 * number, "bytes_s": 5e6 * number,
         "size": 1 << (40 + number)}
        for number in (1, 2, 3)
    ],
    View.QUOTAS: [
        {"client": name, "quota": quota, "throttled": used > limit, "used": used, "limit": limit,
         "share": used / limit, "throttle_ms": 1250.0, "broker": 1, "records_s": None}
        for name, quota, used, limit in (
            ("user=alice,client-id=reports", "producer_byte_rate", 10.5e6, 10e6),
            (LONG, "request_percentage", 25.0, 50.0),
            (HOSTILE, "controller_mutation_rate", 1.5, 5.0),
        )
    ],
    View.CLIENTS: [
        {"client": name, "member": f"{name}-1", "group": "billing", "host": "10.0.0.1",
         "partitions": 4, "records_s": 10.0, "lag": 7}
        for name in ("consumer-1", LONG, HOSTILE, "日本語のクライアント")
    ],
    View.MIRRORS: [
        {"mirror": name, "state": state, "records_s": rate, "bytes_s": rate and rate * 1000,
         "lag": lag, "lag_bytes": lag and lag * 1000, "lag_seconds": lag and lag / 10,
         "losses": lag and 0, "stopped": lag and 1, "partitions": 128, "workers": workers}
        for name, state, rate, lag, workers in (
            ("dc1-to-dc2", "running", 25_000.0, 1_234_567, 2), (LONG[:200], "running", 0.0, 0, 1),
            (HOSTILE, "rebalancing", 12.5, 3, 12), ("old", "expired", None, None, 0),
        )
    ],
}  # fmt: skip
DETAILS = {
    View.TOPICS: [
        {"topic": "clicks", "partition": number, "leader": 1, "records_s": 10.0, "bytes_s": 1e4,
         "size": 1 << 30, "end_offset": 10_000_000}
        for number in range(3)
    ],
    View.GROUPS: [
        {"topic": LONG, "partition": 0, "lag": 5, "records_s": None, "client": HOSTILE}
    ],
    View.MIRRORS: [
        {"topic": "orders", "partition": number, "target": "dc1.orders", "records_s": 10.0,
         "position": 10_000_000, "stopped": "deleted" if number else None}
        for number in range(2)
    ],
}  # fmt: skip


def screens() -> Iterator[tuple[str, Screen]]:
    """Yield each screen with its name, after five updates with growing rates."""
    for view in View:
        screen = Screen()
        screen.choose(view)
        for share in (0, 0.25, 0.5, 0.75, 1):
            screen.update(
                [
                    {**row, "records_s": None if row["records_s"] is None
                     else row["records_s"] * share}
                    for row in ROWS[view]
                ]
            )  # fmt: skip
        yield view.value, screen
        if view in DETAIL_COLUMNS:
            screen.press("enter")
            screen.details = DETAILS[view]
            yield f"{view.value}-partitions", screen


def text_of(screen: Screen) -> str:
    """Return the lines of a screen at all widths, with blocks and without."""
    parts = []
    for width in WIDTHS:
        for blocks in (True, False):
            lines = screen.lines(width, HEIGHT, "12:34:56", color=False, blocks=blocks)
            kind = "blocks" if blocks else "ASCII"
            parts.append(
                "\n".join([f"=== {width} columns, {kind}", *map(str.rstrip, lines)]) + "\n"
            )
    return "".join(parts)


def main() -> None:
    """Write all screens."""
    RECORDED.mkdir(exist_ok=True)
    for name, screen in screens():
        (RECORDED / f"top-{name}.txt").write_text(text_of(screen))


if __name__ == "__main__":
    main()
