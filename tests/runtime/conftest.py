import pytest

from kctl.runtime.real.poller import SelectorPoller, make_poller
from tests.support.real_loop import real_loop

# The fastest of this machine, and what other systems than Linux get.
POLLERS = {"fastest": make_poller, "selectors": SelectorPoller}


@pytest.fixture(params=POLLERS)
def loop(request):
    with real_loop(POLLERS[request.param]()) as loop:
        yield loop
