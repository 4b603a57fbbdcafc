"""TerminalScreen: the whole terminal, for a command that draws on it and reads single keys.

It switches to the alternate screen and back, so that what was there before is there afterwards, on
every exit that Python survives: `close` in a `finally`, and at the end of the process.
"""

import atexit
import os
import re
import select
import sys
import termios
from codecs import getincrementaldecoder

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
_READ_BYTES = 64
_SIZE_DEFAULT = (80, 24)


class TerminalScreen:
    """The terminal of stdin and stdout."""

    def __init__(self) -> None:
        """Take the terminal over; Ctrl-C still is a signal, Ctrl-Z is not."""
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._keys = KeyReader()
        self._before = termios.tcgetattr(self._input)
        changed = termios.tcgetattr(self._input)
        changed[3] &= ~(termios.ICANON | termios.ECHO)
        # A stopped process would leave the terminal as it is now.
        changed[6][termios.VSUSP] = b"\x00"
        termios.tcsetattr(self._input, termios.TCSADRAIN, changed)
        self._is_open = True
        atexit.register(self.close)
        self._write(_ENTER)

    @property
    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        try:
            size = os.get_terminal_size(self._output)
        except OSError:
            return _SIZE_DEFAULT
        return (size.columns, size.lines) if size.columns and size.lines else _SIZE_DEFAULT

    def draw(self, lines: list[str]) -> None:
        """Show `lines`, which fit the terminal, in place of what is there."""
        self._write(_HOME + "\r\n".join(_CLEAR_LINE + line for line in lines) + _CLEAR_BELOW)

    def keys(self) -> list[str]:
        """Return the keys that were pressed since the last call: characters, and `up`, `down`,
        `page-up`, `page-down`, `escape`, `enter`, `backspace`, `tab`."""
        is_ready = bool(select.select([self._input], [], [], 0)[0])
        return self._keys.keys(os.read(self._input, _READ_BYTES) if is_ready else b"")

    def close(self) -> None:
        """Restore the terminal; a second call does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        atexit.unregister(self.close)
        try:
            self._write(_LEAVE)
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        except (OSError, termios.error):
            # The terminal is gone.
            pass

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._output, data) :]


_SEQUENCES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down",
    "\x1b[5~": "page-up", "\x1b[6~": "page-down",
}  # fmt: skip
_NAMES = {
    "\x1b": "escape", "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace",
    "\x08": "backspace",
}  # fmt: skip
# The beginning of a sequence whose end may be in the next read. Longer ones are none.
_BEGUN = re.compile(r"\x1b(O|\[[^A-Za-z~]{0,16})?\Z")


class KeyReader:
    """Splits the bytes of a terminal into keys, wherever a read ends."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    def keys(self, data: bytes) -> list[str]:
        """Return the keys that `data` completes. The beginning of a sequence waits for the next
        call; if that has no bytes, a beginning of one byte was the escape key."""
        text, self._begun = self._begun + self._decoder.decode(data), ""
        begun = _BEGUN.search(text) if data else None
        if begun is not None:
            self._begun = begun[0]
            text = text[: begun.start()]
        return split_keys(text)


def split_keys(text: str) -> list[str]:
    """Return the keys in what a terminal sent; sequences that are not known are left out."""
    keys = []
    while text:
        known = next((it for it in _SEQUENCES if text.startswith(it)), None)
        if known is not None:
            keys.append(_SEQUENCES[known])
            text = text[len(known) :]
        elif text.startswith(("\x1b[", "\x1bO")):
            end = 2
            while end < len(text) and not text[end].isalpha() and text[end] != "~":
                end += 1
            text = text[end + 1 :]
        else:
            key = _NAMES.get(text[0], text[0])
            if len(key) > 1 or key.isprintable():
                keys.append(key)
            text = text[1:]
    return keys
