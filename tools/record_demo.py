"""Records `kctl demo` as an animated picture: `python -m tools.record_demo` writes docs/demo.svg.

The demo runs on a pseudo-terminal. Every line that it prints, with the time at which it appeared,
is a line of text in an SVG that scrolls as a terminal does. Pauses are shortened, so that the
picture shows what happens and not how fast this machine is.
"""

import os
import pty
import re
import sys
import time
from html import escape
from pathlib import Path
from typing import NamedTuple

TARGET = Path(__file__).parents[1] / "docs" / "demo.svg"
COLUMNS, ROWS = 100, 30
_CELL_WIDTH, _LINE_HEIGHT, _MARGIN = 7.8, 18, 14
# No pause is longer or shorter in the picture; the last screen stays for a while.
_PAUSE_MIN, _PAUSE_MAX, _PAUSE_END = 0.12, 1.2, 8.0
_STYLES = {"1": "bold", "2": "dim", "36": "command"}
_ESCAPE = re.compile(r"\x1b\[([\d;]*)m")
_STYLE = """
text {font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace}
text {fill: #d6deeb; white-space: pre}
.bold{font-weight:bold;fill:#fff}.dim{fill:#7f8c9f}.command{fill:#7fdbca}
"""


class TimedLine(NamedTuple):
    """A line of output, with escape sequences, and the second at which it was complete."""

    seconds: float
    text: str


def record(command: list[str]) -> list[TimedLine]:
    """Run `command` on a pseudo-terminal; return its lines. RuntimeError if it fails."""
    started = time.monotonic()
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(COLUMNS=str(COLUMNS), LINES=str(ROWS), TERM="xterm-256color")
        os.execvp(command[0], command)
    lines: list[TimedLine] = []
    rest = b""
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # Linux: the other side is closed
            data = b""
        if not data:
            break
        *complete, rest = (rest + data).split(b"\n")
        now = time.monotonic() - started
        lines += [TimedLine(now, line.decode().rstrip("\r")) for line in complete]
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} failed:\n" + "\n".join(it.text for it in lines))
    return lines


def paced(lines: list[TimedLine]) -> list[TimedLine]:
    """Return the lines at the times at which the picture shows them."""
    now, before = 0.0, 0.0
    found = []
    for line in lines:
        pause = line.seconds - before
        before = line.seconds
        # Lines that came together stay together.
        now += 0.0 if pause < 0.005 and found else min(max(pause, _PAUSE_MIN), _PAUSE_MAX)
        found.append(TimedLine(round(now, 2), line.text))
    return found


def spans(text: str) -> str:
    """Return a line as SVG: a tspan for each stretch of one style."""
    found, style = [], ""
    for number, part in enumerate(_ESCAPE.split(text)):
        if number % 2:
            style = _STYLES.get(part, "")
        elif part:
            name = f' class="{style}"' if style else ""
            found.append(f"<tspan{name}>{escape(part)}</tspan>")
    return "".join(found)


def picture(lines: list[TimedLine]) -> str:
    """Return the SVG of lines at their times; it begins again after the last."""
    width = round(COLUMNS * _CELL_WIDTH + 2 * _MARGIN)
    height = ROWS * _LINE_HEIGHT
    total = lines[-1].seconds + _PAUSE_END
    # How far the text has scrolled at each time, and the number of each time.
    scrolled = {0.0: 0} | {
        line.seconds: max(0, number + 1 - ROWS) * _LINE_HEIGHT for number, line in enumerate(lines)
    }
    numbers = {seconds: number for number, seconds in enumerate(scrolled)}
    texts = [
        f'<text class="t{numbers[line.seconds]}" x="{_MARGIN}"'
        f' y="{(number + 1) * _LINE_HEIGHT - 5}">{spans(line.text)}</text>'
        for number, line in enumerate(lines)
    ]
    style = _STYLE + "".join(
        f"@keyframes k{number}{{0%{{opacity:0}}{seconds / total:.3%}{{opacity:1}}}}"
        f".t{number}{{animation:k{number} {total}s step-end infinite}}"
        for seconds, number in numbers.items()
        if seconds
    )
    steps = "".join(
        f"{seconds / total:.3%}{{transform:translateY(-{shift}px)}}"
        for seconds, shift in scrolled.items()
    )
    style += f"@keyframes s{{{steps}}}.s{{animation:s {total}s step-end infinite}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 2 * _MARGIN}">'
        f"<title>kctl demo</title><style>{style}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#0b1220"/>'
        f'<svg y="{_MARGIN}" width="{width}" height="{height}">'
        f'<g class="s">{"".join(texts)}</g></svg></svg>\n'
    )


if __name__ == "__main__":
    command = sys.argv[1:] or [sys.executable, "-m", "kctl", "demo"]
    TARGET.write_text(picture(paced(record(command))))
    sys.stdout.write(f"wrote {TARGET}\n")
