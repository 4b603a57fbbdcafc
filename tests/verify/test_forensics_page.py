"""docs/forensics.md says what the tests find."""

import pytest

from tests.support.damage_table import PAGE, table, with_table


@pytest.mark.slow
@pytest.mark.long
def test_the_damage_matrix_in_the_docs_is_current():
    """`python -m tests.support.damage_table` updates it."""
    page = PAGE.read_text()
    assert page == with_table(page, table())
