"""Error messages and exit statuses."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from kctl.cli import failures
from kctl.errors import (
    CorruptDataError,
    KctlError,
    NotFoundError,
    StorageError,
    TimedOutError,
    UnreachableError,
    UnsupportedVersionError,
    UsageError,
)
from kctl.protocol.error_codes import ApiError, ErrorCode


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x"), 2),
        (UnreachableError("x"), 3),
        (TimedOutError("x"), 3),
        (ApiError(ErrorCode.INVALID_CONFIG), 1),
        (KctlError("x"), 1),
        (NotFoundError("x"), 1),
        (UnsupportedVersionError("x"), 1),
        (StorageError("x"), 1),
        (CorruptDataError("x"), 1),
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (BrokenPipeError(), 141),
        (KeyboardInterrupt(), 130),
        (ValueError("a bug"), 1),
    ],
)
def test_exit_statuses(error, status):
    assert failures.exit_status(error) == status


def test_message_and_hint_have_a_line_each(capsys):
    failures.report(KctlError("it broke\nbadly", hint="repair it"))

    assert capsys.readouterr().err == "error: it broke badly\nhint: repair it\n"


def test_a_broker_that_lacks_an_api_has_a_hint(capsys):
    failures.report(ApiError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not know X"))

    assert (
        "hint: the broker's version of Apache Kafka does not support this"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (ErrorCode.SECURITY_DISABLED, "authorizer.class.name"),
        (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.master.key"),
    ],
)
def test_what_is_switched_off_names_the_setting_that_switches_it_on(capsys, code, setting):
    failures.report(ApiError(code))
    assert f"hint: the brokers need {setting}" in capsys.readouterr().err


def test_a_full_disk_names_the_file_and_a_remedy(capsys):
    failures.report(OSError(errno.ENOSPC, "No space left on device", "/data/x"))

    assert capsys.readouterr().err == (
        "error: No space left on device: /data/x\n"
        "hint: free some space on that file system and run it again\n"
    )


def test_a_bug_shows_no_traceback_unless_asked_for(capsys, monkeypatch):
    failures.report(ValueError("a bug"))
    quiet = capsys.readouterr().err
    monkeypatch.setenv("KCTL_DEBUG", "1")
    try:
        raise ValueError("a bug")
    except ValueError as error:
        failures.report(error)
    loud = capsys.readouterr().err

    assert "Traceback" not in quiet
    assert "KCTL_DEBUG=1" in quiet
    assert "Traceback" in loud


def test_an_unreachable_broker_is_status_3_and_named(kctl):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

        ran = kctl("topic", "list", "-b", f"127.0.0.1:{port}")

    assert ran.status == 3
    assert ran.out == ""
    assert f"127.0.0.1:{port}" in ran.err
    assert ran.err.splitlines()[1].startswith("hint: ")


def test_a_server_that_closes_the_connection_may_want_tls(kctl):
    """A proxy with TLS closes the connection of a client without TLS, and sends no alert."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_all():
            with suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=close_all, daemon=True).start()
        ran = kctl("topic", "list", "-b", f"127.0.0.1:{listener.getsockname()[1]}",
                   "--timeout", "10s")  # fmt: skip
        listener.shutdown(socket.SHUT_RDWR)

    assert ran.status == 3
    assert "hint: is the broker running? A listener with TLS needs security.protocol" in ran.err


def test_a_host_that_does_not_exist_is_status_3(kctl):
    assert kctl("topic", "list", "-b", "no-such-host.invalid:1", "--timeout", "5s").status == 3


def test_a_broker_that_does_not_respond_in_time_is_status_3(kctl):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ran = kctl("topic", "list", "-b", f"127.0.0.1:{listener.getsockname()[1]}",
                   "--timeout", "200ms")  # fmt: skip

    assert ran.status == 3
    assert ran.err.startswith("error: ")


@pytest.mark.parametrize(
    "argv",
    [
        ("topic", "list", "--nonsense"),
        ("topic", "frobnicate"),
        ("frobnicate",),
        ("topic", "create"),
        ("topic", "list", "-o", "nonsense"),
        ("topic", "create", "x", "-p", "many"),
        ("topic", "list", "-b"),
    ],
)
def test_invalid_usage_is_status_2_with_nothing_on_stdout(kctl, argv):
    ran = kctl(*argv)

    assert ran.status == 2
    assert ran.out == ""
    problem, remedy = ran.err.splitlines()
    assert problem.startswith("error: ")
    assert remedy.startswith("hint: see kctl ")


@pytest.mark.parametrize("argv", [("--help",), ("topic", "--help"), ("topic", "list", "-h")])
def test_help_is_status_0(kctl, argv):
    ran = kctl(*argv)

    assert ran.status == 0
    assert ran.out.startswith("Usage: kctl")


def test_a_mistyped_command_gets_a_suggestion(kctl):
    assert "'topic'" in kctl("topik", "list").err


def test_an_invalid_value_has_a_plain_message(kctl):
    message = kctl("topic", "create", "x", "-p", "many").err
    assert message.startswith(
        "error: Invalid value for '--partitions' / '-p': not a whole number\n"
    )
    message = kctl("topic", "list", "-o", "nonsense").err
    assert "'nonsense' is not one of 'table', 'json'" in message


def test_help_and_version_are_words_too(kctl):
    assert kctl("help").out == kctl("--help").out
    assert kctl("help", "topic", "list").out == kctl("topic", "list", "--help").out
    assert kctl("version").out == kctl("--version").out.rstrip() + " (pure Python)\n"


def assert_ends_like_an_interrupted_process(code):
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert ran.returncode == -signal.SIGINT
    assert ran.stderr == b""


def test_ctrl_c_during_imports_ends_the_process_without_a_traceback():
    code = (
        "import builtins, signal, sys; import kctl.__main__ as m; real = builtins.__import__\n"
        "def stop(name, *rest):\n"
        "    if name == 'kctl.cli.app': signal.raise_signal(signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = stop; sys.argv = ['kctl', '--version']; m.main()"
    )
    assert_ends_like_an_interrupted_process(code)


def test_ctrl_c_while_python_cleans_up_ends_the_process_without_a_traceback():
    code = (
        "import atexit, signal, sys; import kctl.__main__ as m\n"
        "atexit.register(signal.raise_signal, signal.SIGINT)\n"
        "sys.argv = ['kctl', '--version']; m.main()"
    )
    assert_ends_like_an_interrupted_process(code)


def test_ctrl_c_is_handled_before_anything_else_is_imported():
    """Until then Python prints a traceback."""
    code = (
        "import sys; before = set(sys.modules); import kctl.__main__\n"
        "print(*sorted(set(sys.modules) - before - {'gc'}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name != "KCTL_PURE"},
    )  # fmt: skip

    assert ran.stdout.split() == ["kctl", "kctl.__main__"]
