"""Makes what follows from the catalogue of metrics: the tables of docs/metrics.md.

python -m tools.metrics
"""

from pathlib import Path

from kctl.metrics.broker_families import BROKER
from kctl.metrics.cluster_families import CLUSTER
from kctl.metrics.family import Family, Kind

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
TABLES = {"broker": BROKER, "cluster": CLUSTER}


CATALOGUE: tuple[Family, ...] = (*BROKER, *CLUSTER)


def sample_names(family: Family) -> list[str]:
    """Return the names of a family's samples, as an expression of PromQL may use them."""
    name = family.name
    match family.kind:
        case Kind.HISTOGRAM:
            return [f"{name}_bucket", f"{name}_sum", f"{name}_count"]
        case Kind.SUMMARY:
            return [name, f"{name}_sum", f"{name}_count"]
    return [name]


def current(page: str) -> str:
    """Return `page` with the tables of the catalogue."""
    for name, families in TABLES.items():
        begin, end = f"<!-- catalogue: {name} -->\n", f"<!-- end: {name} -->"
        head, _, rest = page.partition(begin)
        tail = rest.partition(end)[2]
        page = f"{head}{begin}{table(families)}{end}{tail}"
    return page


def table(families: tuple[Family, ...]) -> str:
    """Return one row per metric."""
    rows = ["| metric | type | labels | what it is | MBean |", "|---|---|---|---|---|"]
    rows += [
        f"| `{it.name}` | {it.kind.value} | {', '.join(it.labels)} | {it.help.replace('|', '/')} |"
        f" {f'`{it.jmx}`' if it.jmx else ''} |"
        for it in families
    ]
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write all files."""
    PAGE.write_text(current(PAGE.read_text()))


if __name__ == "__main__":
    main()
