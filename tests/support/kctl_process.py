"""`kctl serve` as a process, for tests that kill it, restart it or talk to it from outside."""

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.waiting import wait_for

# No test waits this long: it ends what hangs, also on a machine that does much else.
START_TIMEOUT_S = 120
LOCALHOST = "127.0.0.1"
# A line of kctl.broker.event_log, where nothing is wrong.
_EVENT = re.compile(
    r"\] INFO .* \(kafka\.(controller|coordinator|server\.(Kafka|Replica))[\w.]+\)$"
)
# For brokers that many tests share. Many records of tests are years old, and the check of the
# retention, the first of which comes five minutes after the start, would delete them.
KEEPS_OLD_RECORDS = {"log.retention.check.interval.ms": str(24 * 3600 * 1000)}
KEEPS_OLD_RECORDS_FLAGS = tuple(
    word for name, value in KEEPS_OLD_RECORDS.items() for word in ("-c", f"{name}={value}")
)


def serve_to_end(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a `kctl serve` that is expected to exit without a signal."""
    return subprocess.run(
        [sys.executable, "-m", "kctl", "serve", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


class KctlBroker:
    """One `kctl serve` on a data directory; `kill` and `start` keep the data and the port.

    `prefix`: what its command line begins with, where `host` is another network's."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        port: int = 0,
        host: str = LOCALHOST,
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.port = port
        self.host = host
        self._prefix = prefix
        self._arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log_dir(self) -> Path:
        return self.directory / "data" / "logs"

    @property
    def errors(self) -> str:
        """What the broker said on stderr so far, but for events, and for long turns of its loop: on
        a machine that is busy with other things any turn may take long."""
        path = self.directory / "stderr.log"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return "".join(
            line
            for line in lines
            if "The event loop was busy" not in line and not _EVENT.search(line)
        )

    def start(self) -> "KctlBroker":
        """Run it, and wait until it is ready."""
        return self.launch().wait_until_ready()

    def launch(self) -> "KctlBroker":
        """Run it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        with (self.directory / "stderr.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *self._prefix,
                    sys.executable,
                    "-m",
                    "kctl",
                    "serve",
                    "--data-dir",
                    str(self.directory / "data"),
                    *self._where(),
                    "--ready-file",
                    str(ready),
                    *self._arguments,
                ],
                stdout=subprocess.DEVNULL,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        return self

    def _where(self) -> list[str]:
        if self.host == LOCALHOST:
            return ["--port", str(self.port)]
        return ["--listener", f"PLAINTEXT://{self.address}"]

    def wait_until_ready(self) -> "KctlBroker":
        """RuntimeError with what it said, if it ends or takes too long."""
        assert self.process is not None
        ready = self.directory / "ready"
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"kctl serve did not start:\n{self.errors[-3000:]}")
            time.sleep(0.01)
        self.port = int(ready.read_text().strip().rpartition(":")[2])
        return self

    def wait_for_line(self, text: str) -> None:
        """Return once `text` stands in what the broker logged on stderr."""
        wait_for(lambda: text in self.errors, lambda: f"no {text!r} in:\n{self.errors}")

    def stop(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "KctlBroker":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()


class ConfiguredKctlBroker(KctlBroker):
    """A `kctl serve --config`: its listeners are those of its settings.

    The values are spelled as in a properties file."""

    def __init__(self, directory: Path, settings: Mapping[str, object], *arguments: str) -> None:
        super().__init__(directory, *arguments)
        self._settings = settings

    def _where(self) -> list[str]:
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={it}\n" for name, it in self._settings.items()))
        return ["--config", str(path)]
