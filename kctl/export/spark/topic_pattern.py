"""subscribePattern: translates Java regular expressions for topic names to Python's.

The pattern is searched for anywhere in a name. Python's syntax is close to Java's, so the pattern
is read once, character by character: what means the same in both is kept, a few Java forms are
rewritten, and everything else is rejected, because a pattern with another meaning would silently
select the wrong topics. Topic names are ASCII without line breaks, so differences in Unicode and at
line ends do not matter.

Spark: org.apache.spark.sql.kafka010.SubscribePatternStrategy; Java: java.util.regex.Pattern
"""

import re

from kctl.errors import UsageError

_OPTION = "subscribePattern"
# A topic name has at most 249 characters; a pattern beyond this is a mistake.
_PATTERN_LENGTH_MAX = 10_000
# Escapes that mean the same in both languages.
_SAME_ESCAPES = frozenset("dDwWsSbBAZtnrf")
_HEXADECIMAL = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}")
_BACKREFERENCE = re.compile(r"[1-9](?!\d)")
_COUNT = re.compile(r"\{\d+(?:,\d*)?\}")
# What may follow `(`: groups, flags that both languages have, lookaround, atomic groups.
_GROUP = re.compile(r"\?(?::|=|!|<=|<!|>|[ims]+(?:-[ims]+)?[:)]|-[ims]+:)")
_NAMED_GROUP = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>")
# Set operators of Java or, in a later version, of Python.
_SET_OPERATORS = ("&&", "||", "~~", "--")


def compile_topic_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern in Python's syntax; `search` finds what Java's `find` finds.

    UsageError if it is empty or invalid, or uses a form that Python does not have.
    """
    pattern = text.strip()
    if not pattern:
        raise UsageError(f"{_OPTION} is empty")
    if len(pattern) > _PATTERN_LENGTH_MAX:
        raise UsageError(f"{_OPTION} is longer than {_PATTERN_LENGTH_MAX} characters")
    translated = _Translation(pattern).run()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{_OPTION}: {error}: {pattern}") from None


class _Translation:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []

    def run(self) -> str:
        """Return the whole pattern in Python's syntax."""
        while self._at < len(self._pattern):
            letter = self._pattern[self._at]
            if letter == "\\":
                self._escape()
            elif letter == "[":
                self._set()
            elif letter == "(":
                self._group()
            elif letter == "{":
                self._keep(self._expect(_COUNT, "a { that does not begin a count"))
            else:
                self._keep(letter)
        return "".join(self._out)

    def _escape(self, *, in_set: bool = False) -> None:
        rest = self._pattern[self._at + 1 :]
        if rest.startswith("Q"):
            self._quoted(in_set=in_set)
        elif rest.startswith("z") and not in_set:
            self._replace("\\z", r"\Z")
        elif (found := _HEXADECIMAL.match(rest)) or (
            not in_set and (found := _BACKREFERENCE.match(rest))
        ):
            self._keep("\\" + found[0])
        elif rest[:1] and (rest[0] in _SAME_ESCAPES or not rest[0].isalnum()):
            if in_set and rest[0] in "bBAZ":
                raise self._refused(f"\\{rest[0]} in a set")
            self._keep("\\" + rest[0])
        else:
            raise self._refused(f"the escape \\{rest[:1]}")

    def _quoted(self, *, in_set: bool) -> None:
        if in_set:
            raise self._refused(r"\Q in a set")
        whole = self._pattern[self._at :].split("\\E", 1)[0]
        quoted = whole.removeprefix("\\Q")
        is_closed = self._pattern.startswith("\\E", self._at + len(whole))
        self._replace(whole + ("\\E" if is_closed else ""), re.escape(quoted))

    def _set(self) -> None:
        self._keep("[")
        if self._pattern.startswith("^", self._at):
            self._keep("^")
        is_first = True
        while self._at < len(self._pattern):
            letter = self._pattern[self._at]
            operator = self._pattern[self._at : self._at + 2]
            if letter == "]" and not is_first:
                self._keep("]")
                return
            if letter == "[" or letter == "]" or operator in _SET_OPERATORS:
                raise self._refused(
                    f"{operator if operator in _SET_OPERATORS else letter} in a set"
                )
            is_first = False
            if letter == "\\":
                self._escape(in_set=True)
            else:
                self._keep(letter)
        raise self._refused("a [ that is not closed")

    def _group(self) -> None:
        self._keep("(")
        if not self._pattern.startswith("?", self._at):
            return
        named = _NAMED_GROUP.match(self._pattern, self._at)
        if named is not None:
            self._replace(named[0], f"?P<{named[1]}>")
            return
        self._keep(self._expect(_GROUP, "a group (? of this kind"))

    def _expect(self, form: re.Pattern[str], what: str) -> str:
        found = form.match(self._pattern, self._at)
        if found is None:
            raise self._refused(what)
        return found[0]

    def _keep(self, text: str) -> None:
        self._replace(text, text)

    def _replace(self, text: str, python: str) -> None:
        self._out.append(python)
        self._at += len(text)

    def _refused(self, what: str) -> UsageError:
        return UsageError(
            f"{_OPTION}: kctl does not support {what} (position {self._at}): {self._pattern}",
            hint="write it with sets, groups, counts and the escapes \\d \\w \\s \\b",
        )
