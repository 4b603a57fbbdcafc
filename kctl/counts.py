"""Numbers with their nouns, as messages name them."""


def counted(number: int, noun: str, form: str = "") -> str:
    """Return the number, formatted by `form`, with its noun.

    >>> counted(1, "topic"), counted(2, "topic"), counted(2000, "record", ",")
    ('1 topic', '2 topics', '2,000 records')
    """
    return f"{number:{form}} {noun}" + ("" if number == 1 else "s")
