"""PrincipalRules: which principal a certificate's subject is, by `ssl.principal.mapping.rules`.

Rules are separated by commas. `DEFAULT` takes the subject as it is;
`RULE:pattern/replacement/` applies to the subjects that the pattern matches as a whole, and
replaces every match in them, as Java's `replaceAll` does; `L` or `U` at the end changes the case.
The first rule that applies decides. A group that the pattern lacks stays as text.

Patterns are Java's; Python's differ in a few constructs, which are refused by name.

Kafka 2.7: org.apache.kafka.common.security.ssl.SslPrincipalMapper; KIP-371
"""

import re

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

SETTING = "ssl.principal.mapping.rules"
DEFAULT_RULES = "DEFAULT"

_PART = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?)|)\s*(?:,|$)", re.DOTALL)
# What Java's patterns have and Python's do not, or not with the same meaning.
_JAVA_ONLY = (r"\p{", r"\P{", r"\Q", r"\E", r"\h", r"\H", r"\R", r"\X", r"\G", r"\z", r"\k<", "&&")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the name that the rule gives `subject`; None: it does not apply."""
        if self.pattern is None:
            return subject
        if not self.pattern.fullmatch(subject):
            return None
        name = self.pattern.sub(self._expand, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _expand(self, match: re.Match[str]) -> str:
        def value(reference: re.Match[str]) -> str:
            literal, digits, group = reference.groups()
            if literal is not None:
                return str(literal)
            if group is not None:
                return match[group] or ""
            return _numbered(match, digits)

        return _REFERENCE.sub(value, self.replacement)


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str = DEFAULT_RULES) -> None:
        """Parse the rules; raise UsageError."""
        self._rules = _parse(text)

    def name_of(self, subject: str) -> str | None:
        """Return the name of the principal with the certificate's `subject`; None: no rule
        applies."""
        names = (rule.apply(subject) for rule in self._rules)
        return next((name for name in names if name is not None), None)


def _parse(text: str) -> list[_Rule]:
    rules = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise UsageError(f"{SETTING}: cannot read a rule from {text[position : position + 60]}")
        default, pattern, replacement, case = found.groups()
        if default:
            rules.append(_Rule())
        elif pattern is not None:
            rules.append(_Rule(_compiled(pattern), _checked(replacement), case))
        position = found.end()
    return rules


def _compiled(pattern: str) -> re.Pattern[str]:
    for construct in _JAVA_ONLY:
        if construct in pattern:
            raise UsageError(f"{SETTING}: {construct} is not supported in the pattern {pattern}")
    named = re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
    try:
        compiled = re.compile(named.replace(r"\Z", r"(?=\n?\Z)"))
    except re.error as error:
        raise UsageError(f"{SETTING}: invalid pattern {pattern}: {error}") from None
    return compiled


def _checked(replacement: str) -> str:
    if "$" in _REFERENCE.sub("", replacement):
        raise UsageError(f"{SETTING}: $ without a group in {replacement}", hint=r"write \$ for a $")
    return replacement


def _numbered(match: re.Match[str], digits: str) -> str:
    """Return the group that as many of `digits` as possible name, and the remaining digits."""
    count = match.re.groups
    if int(digits[0]) > count:
        return f"${digits}"
    length = 1
    while length < len(digits) and int(digits[: length + 1]) <= count:
        length += 1
    return (match[int(digits[:length])] or "") + digits[length:]
