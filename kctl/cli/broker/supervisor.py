"""Sends requests to the supervisor of a local cluster (`kctl serve --brokers N`) on
this machine.
"""

from pathlib import Path
from typing import Any

from kctl.errors import UnreachableError

# A broker may recover logs before it is ready.
ANSWER_TIMEOUT_MS = 180_000


def ask_supervisor(request: dict[str, Any], data_dir: str) -> dict[str, Any]:
    """Return the response of the local cluster in `data_dir`; UnreachableError if none runs."""
    from kctl.local_cluster.control import STATE_FILE, ControlAddress, ask
    from kctl.runtime.real import make_runtime
    from kctl.runtime.trace import NullTrace

    path = Path(data_dir) / STATE_FILE
    no_cluster = UnreachableError(
        f"no local cluster runs on {data_dir}",
        hint=f"start one: kctl serve --brokers 3 --data-dir {data_dir}",
    )
    try:
        address = ControlAddress.decode(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise no_cluster from None
    runtime = make_runtime(NullTrace())
    try:
        asking = ask(runtime, address, request, ANSWER_TIMEOUT_MS)
        return runtime.scheduler.run_until(runtime.scheduler.spawn(asking))
    except UnreachableError as error:
        raise no_cluster from error
    finally:
        runtime.scheduler.close()
