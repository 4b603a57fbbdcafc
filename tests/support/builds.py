"""Tests that a compiled build cannot pass: they replace what it has compiled in."""

import pytest

from kctl.builds import is_compiled

needs_sources = pytest.mark.skipif(
    is_compiled(), reason="replaces a constant, function, method or object that is compiled in"
)
