"""Apache Kafka's command-line tools in a warm JVM: `JavaTools.run("kafka.admin.TopicCommand")`.

A tool runs as in a process of its own (arguments, stdin, stdout, stderr, exit status); see
`java/ToolRunner.java`.
"""

import contextlib
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import apache_kafka

RUNNER = Path(__file__).parent / "java" / "ToolRunner.java"
# For the shutdown hooks.
FLAGS = (*apache_kafka.SMALL_JVM, "--add-opens=java.base/java.lang=ALL-UNNAMED")
TIMEOUT_S = 60


@dataclass(frozen=True)
class ToolResult:
    """What a tool left; status None: it was still running at the time limit."""

    status: int | None
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout that say something."""
        return [line.rstrip() for line in self.out.splitlines() if line.strip()]


class JavaTools:
    """One JVM with the tools of one version; not for several threads."""

    def __init__(self, version: str) -> None:
        self.version = version
        *options, _ = apache_kafka.java_command(version, "-", flags=FLAGS)
        self._process = subprocess.Popen(
            [*options, str(RUNNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(
        self, main_class, *arguments, stdin="", timeout_s=TIMEOUT_S, stop_after_s=None, status=0
    ) -> ToolResult:
        """Run a tool to its end, or send it SIGTERM after `stop_after_s`. AssertionError unless
        it exits with `status` (None: whatever it is)."""
        words = [main_class, *map(str, arguments)]
        limit_s = timeout_s if stop_after_s is None else stop_after_s
        request = struct.pack(">i", len(words)) + b"".join(map(packed, (*words, stdin)))
        request += struct.pack(">i?", int(limit_s * 1000), stop_after_s is not None)
        self._process.stdin.write(request)
        self._process.stdin.flush()
        (code,) = struct.unpack(">i", self._read(4))
        out, err = (self._read(struct.unpack(">i", self._read(4))[0]).decode() for _ in range(2))
        result = ToolResult(None if code == -1 else code, out, err)
        if status is not None and result.status != status:
            raise AssertionError(
                f"{' '.join(words)}: exit {result.status}, not {status}\n{out}\n{err}"
            )
        return result

    def _read(self, count: int) -> bytes:
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise RuntimeError("the JVM of the tools is gone")
        return data

    def __enter__(self) -> "JavaTools":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        # First the process: a pipe that broke, with bytes in it, does not close in good order.
        apache_kafka.stop(self._process)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()


def packed(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data
