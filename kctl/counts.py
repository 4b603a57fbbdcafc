"""Numbers with their nouns, as messages name them, and the whole numbers that users type."""

INT64_MAX = (1 << 63) - 1
# `int` refuses more than 4,300 digits.
_DIGITS_MAX = len(str(INT64_MAX))


def counted(number: int, noun: str, form: str = "") -> str:
    """Return the number, formatted by `form`, with its noun, whose plural is regular.

    >>> counted(1, "topic"), counted(2, "batch"), counted(2000, "record", ",")
    ('1 topic', '2 batches', '2,000 records')
    """
    ending = "es" if noun.endswith("ch") else "s"
    return f"{number:{form}} {noun}" + ("" if number == 1 else ending)


def offset_range(first: int, last: int) -> str:
    """Return the name of the offsets from `first` to `last`, inclusive.

    >>> offset_range(5, 5), offset_range(5, 7)
    ('offset 5', 'offsets 5 to 7')
    """
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def are(number: int) -> str:
    """Return the verb that follows `counted`.

    >>> are(1), are(0), are(2)
    ('is', 'are', 'are')
    """
    return "is" if number == 1 else "are"


def is_whole_number(text: str, most: int = INT64_MAX) -> bool:
    """Return whether `text` is a number from 0 to `most` in ASCII digits: `int` accepts it.

    `str.isdigit` alone accepts superscripts, too, which are no numbers for `int`.

    >>> is_whole_number("12"), is_whole_number("12", 9), is_whole_number("-1"), is_whole_number("²")
    (True, False, False, False)
    """
    is_short = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return is_short and int(text) <= most
