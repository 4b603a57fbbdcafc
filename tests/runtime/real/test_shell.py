"""Shell commands in a directory of their own: what they print, and that none is left behind."""

import os
import shutil
import signal
import subprocess

import pytest

from kctl.errors import KctlError
from kctl.runtime.real.shell import Shell


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_command_runs_in_the_directory_and_prints_to_both_streams():
    with Shell() as shell:
        ran = shell.run("echo out; echo err >&2; pwd; exit 3")
        assert ran == (3, f"out\nerr\n{shell.directory}\n")
        directory = shell.directory
    assert not directory.exists()


def test_kctl_is_this_one():
    from kctl import __version__

    with Shell() as shell:
        assert shell.run("kctl --version") == (0, f"kctl {__version__}\n")


def test_the_directory_is_kept_on_request():
    with Shell(keep=True) as shell:
        shell.run("echo kept > file")
    assert (shell.directory / "file").read_text() == "kept\n"
    shutil.rmtree(shell.directory)


def test_every_process_of_a_background_command_ends_with_the_shell():
    with Shell() as shell:
        started = shell.start("sleep 1000 & echo $! > child; sleep 1000; true")
        child = int(shell.wait_for("child", started))
        assert is_alive(child)
    assert not started.is_running
    assert not is_alive(child)


def test_a_child_that_outlives_its_shell_for_a_moment_is_waited_for():
    """The supervisor of a cluster stops its brokers before it ends."""
    script = (
        "trap 'sleep 0.3; echo stopped > ../{name}; exit' TERM; echo up > up; sleep 1000 & wait"
    )
    with Shell() as shell:
        name = f"{shell.directory.name}.stopped"
        result = shell.directory.parent / name
        inner = script.format(name=name)
        shell.wait_for("up", shell.start(f"sh -c '{inner.replace(chr(39), chr(34))}'; true"))
    assert result.read_text() == "stopped\n"
    result.unlink()


def test_a_background_command_that_ends_early_is_an_error_with_its_output():
    with Shell() as shell, pytest.raises(KctlError, match="port in use"):
        shell.wait_for("ready", shell.start("echo port in use; exit 1"))


def test_signals_are_handled_again_after_it_is_closed():
    former = signal.getsignal(signal.SIGINT)
    with Shell():
        pass
    assert signal.getsignal(signal.SIGINT) == former


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted_while_it_starts_is_ended(monkeypatch, number):
    """The process exists before `start` knows it: a signal in between is handled afterwards."""
    processes = []
    popen = subprocess.Popen

    def interrupted(*arguments, **options):
        processes.append(popen(*arguments, **options))
        signal.raise_signal(number)
        return processes[-1]

    former = signal.signal(number, signal.default_int_handler)
    try:
        monkeypatch.setattr(subprocess, "Popen", interrupted)
        with pytest.raises(KeyboardInterrupt), Shell() as shell:
            shell.run("sleep 1000")
    finally:
        signal.signal(number, former)
    assert processes[0].poll() is not None
    assert not shell.directory.exists()
