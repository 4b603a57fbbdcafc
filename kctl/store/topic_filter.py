"""Whitelist and Blacklist: filters of topics, in the part of Java's regular expressions that Python
can match alike. Pure.

A filter is prepared as Kafka does it: blanks around it, and quotes, are removed, `,` becomes `|`,
blanks go. It must match a topic's whole name. A white list reads the topics that match, a black
list the others; Kafka's internal topics are read by neither, unless the consumer asks for them.

All members of a group must select the same topics. So an expression that Python would read
otherwise than Java is refused, never guessed at: what is supported is literals, `.`, escapes of
punctuation, `^ $`, `\\d \\D \\w \\W \\s \\S`, POSIX classes such as `\\p{Alnum}`, classes without
intersections or nested classes, groups `(...)` and `(?:...)`, alternatives, and the quantifiers
`? * + {n} {n,} {n,m}`, greedy or lazy.

Kafka 1.1: kafka.consumer.TopicFilter; Java: java.util.regex.Pattern.
"""

import re
from collections.abc import Callable, Iterator

from kctl.errors import UsageError
from kctl.protocol.constants import INTERNAL_TOPICS
from kctl.store.consumer_znodes import Pattern, Subscription

PATTERN_CHARACTERS_MAX = 10_000
# The largest count of a quantifier; Python and Java agree up to here.
REPETITIONS_MAX = 1_000

# Java's classes of ASCII characters, as the inside of a Python class.
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "ASCII": r"\x00-\x7f",
    "Space": r" \t\n\x0b\f\r",
}
_SHORT = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0b\f\r"}
_CONTROLS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\x07", "e": r"\x1b"}
_QUANTIFIERS = "?*+{"


class TopicFilter:
    """Selects topics by a regular expression; see Whitelist and Blacklist."""

    # This kind of filter in a group's registry.
    pattern: Pattern

    def __init__(self, expression: str) -> None:
        """Prepare `expression`; raise UsageError for what is no regular expression, or may mean
        another thing in Python than in Java."""
        # The expression that Kafka registers.
        self.regex = prepared(expression)
        self._match: Callable[[str], object] = re.compile(translated(self.regex)).fullmatch

    def allows(self, topic: str, *, exclude_internal_topics: bool = True) -> bool:
        """Return whether a consumer with this filter reads `topic`."""
        raise NotImplementedError

    def _matches(self, topic: str) -> bool:
        return self._match(topic) is not None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.regex == self.regex

    def __hash__(self) -> int:
        return hash((type(self), self.regex))


class Whitelist(TopicFilter):
    """Reads the topics whose whole name matches.

    >>> [it for it in ("orders", "payments", "logs") if Whitelist("ord.*,pay.*").allows(it)]
    ['orders', 'payments']
    """

    pattern = Pattern.WHITE_LIST

    def allows(self, topic: str, *, exclude_internal_topics: bool = True) -> bool:
        """Return whether `topic` matches."""
        return self._matches(topic) and not (exclude_internal_topics and topic in INTERNAL_TOPICS)


class Blacklist(TopicFilter):
    """Reads the topics whose name does not match.

    >>> Blacklist("logs").allows("orders"), Blacklist("logs").allows("logs")
    (True, False)
    """

    pattern = Pattern.BLACK_LIST

    def allows(self, topic: str, *, exclude_internal_topics: bool = True) -> bool:
        """Return whether `topic` does not match."""
        is_hidden = exclude_internal_topics and topic in INTERNAL_TOPICS
        return not self._matches(topic) and not is_hidden


def registered_filter(subscription: Subscription) -> TopicFilter:
    """Return the filter that all members of a group apply to a registration that has one, also
    where it is not what its owner meant; UsageError for a filter that is not supported."""
    ((regex, _),) = subscription.streams.items()
    kind = Whitelist if subscription.pattern is Pattern.WHITE_LIST else Blacklist
    return kind(subscription.registered_filter or regex)


def prepared(expression: str) -> str:
    """Return a filter as Kafka registers it.

    >>> prepared(' "a.*, b" ')
    'a.*|b'
    """
    # Java trims what is not above a blank, replaces, and strips all quotes at either end.
    text = expression.strip("".join(map(chr, range(33))))
    return text.replace(",", "|").replace(" ", "").lstrip("\"'").rstrip("\"'")


def translated(regex: str) -> str:
    """Return the Python expression that matches what `regex` matches in Java; UsageError if there
    is none that is known to."""
    if len(regex) > PATTERN_CHARACTERS_MAX:
        raise UsageError(f"a topic filter has at most {PATTERN_CHARACTERS_MAX} characters")
    text = "".join(_Translation(regex).pieces())
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"no regular expression: {regex}: {error}") from None
    return text


class _Translation:
    """One pass over an expression, a token at a time."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._at = 0
        self._depth = 0

    def pieces(self) -> Iterator[str]:
        """Yield the Python expression of each token."""
        can_repeat = False
        while self._at < len(self._regex):
            char = self._regex[self._at]
            if char not in _QUANTIFIERS:
                self._at += 1
                yield self._token(char)
            elif can_repeat:
                yield self._quantifier()
            else:
                raise self._refused(f"{char!r} repeats nothing, or a quantifier")
            can_repeat = char not in _QUANTIFIERS + "(|^$"
        if self._depth:
            raise self._refused("a group is not closed")

    def _token(self, char: str) -> str:
        if char == "\\":
            return self._escape()
        if char == "[":
            return self._class()
        if char == "(":
            return self._open()
        if char == ")":
            return self._close()
        return char if char in "|^$" else self._literal(char)

    def _literal(self, char: str) -> str:
        if char == ".":
            # Java's dot stops at any line end; no topic's name has one.
            return "[^\\n\\r\\x85\\u2028\\u2029]"
        return re.escape(char)

    def _open(self) -> str:
        self._depth += 1
        if self._regex.startswith("?:", self._at):
            self._at += 2
            return "(?:"
        if self._regex.startswith("?", self._at):
            raise self._refused("groups that begin with '(?' are not supported, except '(?:'")
        return "(?:"

    def _close(self) -> str:
        self._depth -= 1
        if self._depth < 0:
            raise self._refused("')' closes no group")
        return ")"

    def _quantifier(self) -> str:
        found = re.compile(r"[?*+]|\{(\d+)(?:,(\d*))?\}").match(self._regex, self._at)
        if found is None:
            raise self._refused("'{' begins no quantifier {n}, {n,} or {n,m}; write '\\{'")
        low, high = found[1], found[2]
        if any(int(it) > REPETITIONS_MAX for it in (low, high) if it):
            raise self._refused(f"a quantifier repeats more than {REPETITIONS_MAX} times")
        if low and high and int(low) > int(high):
            raise self._refused("a quantifier's maximum is below its minimum")
        self._at = found.end()
        if self._regex.startswith("+", self._at):
            raise self._refused("possessive quantifiers are not supported")
        if self._regex.startswith("?", self._at):
            self._at += 1
            return found[0] + "?"
        return found[0]

    def _escape(self, *, in_class: bool = False) -> str:
        char = self._next("a backslash at the end")
        if char in _SHORT:
            return _SHORT[char] if in_class else f"[{_SHORT[char]}]"
        if char.lower() in _SHORT:
            if in_class:
                raise self._refused(f"'\\{char}' inside [...] is not supported")
            return f"[^{_SHORT[char.lower()]}]"
        if char in "pP":
            return self._posix(is_negated=char == "P", in_class=in_class)
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isascii() and char.isalnum():
            raise self._refused(f"'\\{char}' is not supported")
        return re.escape(char)

    def _posix(self, *, is_negated: bool, in_class: bool) -> str:
        found = re.compile(r"\{(\w+)\}").match(self._regex, self._at)
        inside = _POSIX.get(found[1]) if found else None
        if found is None or inside is None:
            known = ", ".join(_POSIX)
            raise self._refused(f"'\\p' is supported with {{NAME}} of {known}")
        self._at = found.end()
        if in_class:
            if is_negated:
                raise self._refused("'\\P' inside [...] is not supported")
            return inside
        return f"[{'^' if is_negated else ''}{inside}]"

    def _class(self) -> str:
        text = "["
        if self._regex.startswith("^", self._at):
            self._at += 1
            text += "^"
        is_empty = True
        while (char := self._next("a class [...] is not closed")) != "]" or is_empty:
            if char == "]":
                raise self._refused("'[]' is not supported; write '\\]'")
            if char == "[" or (char == "&" and self._regex.startswith("&", self._at)):
                raise self._refused("classes inside classes, and '&&', are not supported")
            text += self._member(char)
            is_empty = False
        return text + "]"

    def _member(self, char: str) -> str:
        """Return the Python form of a character, class or range inside `[...]`."""
        first = self._escape(in_class=True) if char == "\\" else re.escape(char)
        if char == "-" and not self._is_at_edge():
            raise self._refused("'-' between two members of a class; write '\\-'")
        if not self._regex.startswith("-", self._at) or self._regex.startswith("-]", self._at):
            return first
        self._at += 1
        end = self._next("a range is not complete")
        if char == "\\" or end in "\\[]&":
            raise self._refused("a range in a class goes from a plain character to another")
        if ord(end) < ord(char):
            raise self._refused(f"the range {char}-{end} is backwards")
        return f"{first}-{re.escape(end)}"

    def _is_at_edge(self) -> bool:
        before = self._regex[self._at - 2]
        return before in "[^" or self._regex.startswith("]", self._at)

    def _next(self, otherwise: str) -> str:
        if self._at >= len(self._regex):
            raise self._refused(otherwise)
        self._at += 1
        return self._regex[self._at - 1]

    def _refused(self, why: str) -> UsageError:
        return UsageError(
            f"topic filter {self._regex}: {why}",
            hint="docs/compatibility.md lists what a topic filter may have",
        )
