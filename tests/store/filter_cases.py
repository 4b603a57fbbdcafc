"""Topic filters and what Java makes of them; `python -m tests.store.filter_cases` asks Apache Kafka
1.1.1 and writes the answers to GOLDEN, a line for each: its answer, then the filter."""

import subprocess
from pathlib import Path
from random import Random  # noqa: TID251 - seeded

GOLDEN = Path(__file__).parent.parent / "golden" / "topic_filters.txt"
COUNT = 300
TOPICS = (
    "t",
    "t1",
    "t12",
    "orders",
    "Orders",
    "order_s",
    "pay.ments",
    "payxments",
    "a-b",
    "a",
    "aa",
    "aaa",
    "b",
    "ab",
    "ba",
    "logs",
    "x9",
    "_",
    "-",
    ".",
    "9",
    "0-9",
    "A",
    "tt",
    "a.b.c",
    "]",
    "^a",
    "a|b",
)
WRITTEN = (
    "orders",
    "ord.*,pay.*",
    " orders , t ",
    '"orders,t"',
    "'ord.*'",
    "[a-z]+",
    "[^a-z]",
    "\\p{Alnum}+",
    "[\\p{Upper}\\p{Digit}]+",
    "\\P{Alpha}",
    "\\w+",
    "\\W",
    "\\d",
    "\\D+",
    "(?:a|b)+",
    "(a|b)\\1",
    "a.b",
    "a\\.b.*",
    "[a-]",
    "[-a]",
    "[a-z-9]",
    "[0-9&&[^5]]",
    "[[a]]",
    "a*+",
    "(?i)orders",
    "^t$",
    "t{1,2}",
    "t{2}",
    "t{1",
    "a??",
    "a+?",
    "\\Qa.b\\E",
    "[]a]",
    "[^^]",
    "[a^]+",
    "\\-",
    "\\]",
    "[\\]]",
    "*",
    "+a",
    "a|",
    "|a",
    "",
    "()",
    "(a",
    "a)",
    "[a",
    "a\\",
    "\\p{IsAlphabetic}",
    "\\p{L}",
    "[\\w.]+",
    "[\\W]",
    "\\x41",
    "\\u0041",
    "\\h",
    "[.]",
    "a{0}",
    "a{0,0}",
    "\\.",
    "(a*)*b",
    ".",
    "..",
    ".*",
    "[b-a]",
    "\\^a",
    "[\\^a]+",
    "a\\|b",
    "]",
    "}",
    "{",
    "a{",
    "a}",
    "&&",
    "[a&b]+",
    "[a&&b]",
    "~",
    "#a",
    "a#b",
    "(?=a)a",
    "(?<x>a)",
    "\\b",
    "\\s*t",
    "\\S+",
    "[\\s\\S]+",
    "[\\d-]+",
    "[a-c\\d]+",
    "t\\d{1}\\d?",
)


def filters():
    """COUNT filters: those above, and random ones of the same pieces."""
    random = Random(17)
    pieces = [
        "a",
        "b",
        "t",
        "o",
        ".",
        "\\.",
        "\\d",
        "\\w",
        "[ab]",
        "[^a]",
        "[a-t]",
        "\\p{Alnum}",
        "-",
        "_",
        "(a|b)",
        "(?:t|o)",
        "\\p{Lower}",
        "1",
        "[.-]",
        "9",
        "(",
        ")",
        "[",
        "&&",
        "\\1",
    ]
    made = list(WRITTEN)
    while len(made) < COUNT:
        count = random.randint(1, 5)
        text = ""
        for _ in range(count):
            text += random.choice(pieces) + random.choice(
                ["", "", "", "*", "+", "?", "{2}", "|", ","]
            )
        if text not in made:
            made.append(text)
    return made


def golden():
    """[(Java's answer, filter)]."""
    lines = GOLDEN.read_text().splitlines()
    return [tuple(line.split(" ", 1)) for line in lines]


if __name__ == "__main__":
    from tests.support import apache_kafka

    program = Path(__file__).parent.parent / "support" / "java" / "TopicFilters.java"
    *options, _ = apache_kafka.java_command("1.1.1", "-")
    run = subprocess.run(
        [*options, str(program), *TOPICS],
        input="".join(f"{it}\n" for it in filters()),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = run.stdout.splitlines()
    pairs = zip(answers, filters(), strict=True)
    GOLDEN.write_text("".join(f"{answer} {text}\n" for answer, text in pairs))
