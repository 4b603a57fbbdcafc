"""subscribePattern finds what Java's `Pattern.matcher(topic).find()` finds, or is refused."""

import pytest

from kctl.errors import UsageError
from kctl.export.spark.topic_pattern import compile_topic_pattern

TOPICS = ("orders", "orders-eu", "Payments", "a.b", "x_1")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", {"orders", "orders-eu"}),
        ("rder", {"orders", "orders-eu"}),
        (" ^orders$ ", {"orders"}),
        ("a.b", {"a.b"}),
        (r"\Qa.b\E|^x", {"a.b", "x_1"}),
        (r"\Qa.", {"a.b"}),
        (r"^[^a-z]", {"Payments"}),
        (r"[\w.-]+\d\z", {"x_1"}),
        (r"(?i)PAY", {"Payments"}),
        (r"(?<first>s)-(?:eu|us)", {"orders-eu"}),
        (r"([a-z])\1|\x5f|\u005f", {"x_1"}),
        (r"r{1}d{1,}e{0,3}rs++$", {"orders"}),
        (r"^(?!orders).+(?<=s)$", {"Payments"}),
        ("nothing", set()),
    ],
)
def test_a_pattern_is_found_anywhere(pattern, expected):
    found = compile_topic_pattern(pattern)
    assert {topic for topic in TOPICS if found.search(topic)} == expected


@pytest.mark.parametrize(
    "pattern",
    ["", " ", "(", "[a", "a{", "a{,3}", "a{x}", "*", r"\p{Alpha}+", r"\Z\v", r"\h", r"\G", r"\e",
     r"\y", "[a-z&&[^p]]", "[a[b]]", "[]a]", r"[\Qa\E]", "(?P<n>a)", "(?(1)a)", "(?#a)", "a(?i)b",
     "(?u)a", "(?x)a", "(?<=a+)b", "\\", r"\12", "x" * 20_000, "(" * 5_000],
)  # fmt: skip
def test_syntax_that_python_reads_differently_from_java_is_rejected(pattern):
    with pytest.raises(UsageError, match="subscribePattern"):
        compile_topic_pattern(pattern)
