import pytest

from tests.support.real_loop import real_loop


@pytest.fixture
def loop():
    with real_loop() as loop:
        yield loop
