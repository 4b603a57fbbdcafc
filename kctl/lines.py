"""Lines of text files as Java, TOML and shells end them: by a line feed, a carriage return or both.

`str.splitlines` also ends a line at characters that may be part of a name, a password or a value:
form feeds, U+001C to U+001E, U+0085, U+2028, U+2029. Text that a program reads is therefore split
here; `splitlines` is for text that a person reads. Pure.

Java: java.io.BufferedReader.readLine, java.util.Properties.load.
"""

import re

_END = re.compile(r"\r\n|\r|\n")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def split_lines(text: str) -> list[str]:
    r"""Return the lines of `text` without their ends; what follows the last end is a line, too,
    unless it is empty.

    >>> split_lines("a\x85b\r\n\nc")
    ['a\x85b', '', 'c']
    """
    lines = _END.split(text)
    return lines if lines[-1] else lines[:-1]


def split_kept_lines(text: str) -> list[str]:
    r"""Return the lines of `text` with their ends: joined, they are `text`.

    >>> split_kept_lines("a\x85b\r\n\nc")
    ['a\x85b\r\n', '\n', 'c']
    """
    return _LINE.findall(text)
