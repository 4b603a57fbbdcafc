"""What is made from the catalogue of metrics is current."""

from tools import metrics


def test_the_tables_of_the_page_are_current():
    """`python -m tools.metrics` makes them."""
    page = metrics.PAGE.read_text()
    assert page == metrics.current(page)
