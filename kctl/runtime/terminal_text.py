"""Escapes text of other parties that is printed to a terminal or written to a log.

Record values, names of topics and messages of brokers may contain characters that move the cursor,
change colors, retitle the window, or reverse the direction of writing.
"""

import re

# C0 without tab and newline, DEL, C1, lone surrogates (bytes that are not UTF-8), and the
# characters of Unicode that change the direction of text or are invisible.
_UNSAFE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
_UNSAFE_IN_JSON = "[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"


def for_terminal(text: str) -> str:
    """Return `text` with unsafe characters as escapes, e.g. \\x1b or \\u202e.

    A character outside ASCII becomes an escape that is also valid in JSON.
    """
    if text.isascii() and text.isprintable():
        return text
    # Compiled at its first use (and cached by `re`): most texts never need it.
    return re.sub(_UNSAFE, _escape, text)


def for_json(text: str) -> str:
    """Return a text of JSON with unsafe characters as escapes, which mean the same. DEL is one;
    line breaks between values and surrogates, which are bytes that are not UTF-8, stay."""
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(_UNSAFE_IN_JSON, _escape, text)


def bytes_for_terminal(data: bytes | memoryview) -> str:
    """Return `data` as text for a terminal; a byte that is not UTF-8 is \\xNN."""
    return for_terminal(bytes(data).decode("utf-8", "surrogateescape"))


def for_log_line(text: str) -> str:
    """Return `text` without line breaks and with unsafe characters as escapes: nothing that a
    client sends can look like a line of the log."""
    if text.isprintable():
        return text
    return for_terminal(text.replace("\n", "\\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
        return f"\\x{code:02x}"
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"
