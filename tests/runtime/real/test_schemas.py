"""Errors of a schema registry say whether a later request may succeed."""

import pytest

from kctl.errors import KctlError, UnreachableError, UsageError
from kctl.runtime.real.schemas import get_json
from tests.support.schema_registry import running_registry


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, KctlError), (401, KctlError), (404, UsageError), (408, UnreachableError),
        (429, UnreachableError), (500, UnreachableError), (502, UnreachableError),
        (503, UnreachableError), (504, UnreachableError),
    ],
)  # fmt: skip
def test_a_registry_that_has_failed_may_answer_later(status, expected):
    """A followed table waits for it; it ended."""
    with running_registry() as registry:
        registry.failure = status
        with pytest.raises(expected, match="not now") as raised:
            get_json(registry.url, "/subjects/users/versions")
    assert type(raised.value) is expected
