"""Completion scripts are current and valid, and offer the right candidates."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.cli.completion import FILE_NAMES, Shell, script

ROOT = Path(__file__).parents[2]

BASH = """
source {script}
COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}
_kctl; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ }}
_files() {{ print -- '<files>' }}
_describe() {{ print -l -- "${{(@P)${{@[-1]}}}}" | sed 's/:.*//' }}
compadd() {{ shift; print -l -- "$@" }}
source {script}
words=({words}); CURRENT=$#words; _kctl
"""
FISH = "source {script}; complete -C {line!r}"


@pytest.mark.parametrize("shell", Shell)
def test_the_scripts_in_the_repository_are_current(shell):
    """`kctl completion SHELL > completions/...` writes them again."""
    assert (ROOT / "completions" / FILE_NAMES[shell]).read_text() == script(shell)


def test_the_command_prints_the_script(kctl):
    assert kctl("completion", "zsh").out == script(Shell.ZSH)


@pytest.fixture(params=["bash", "zsh", "fish"])
def offers(request, tmp_path, monkeypatch):
    """Return the candidates of the shell at the end of a command line."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    binaries = tmp_path / "bin"
    binaries.mkdir()
    command = binaries / "kctl"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kctl "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(binaries), prepend=":")
    path = tmp_path / FILE_NAMES[Shell(shell)]
    path.write_text(script(Shell(shell)))

    def ask(line):
        words = line.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        text = {"bash": BASH, "zsh": ZSH, "fish": FISH}[shell].format(
            script=path, line=line, words=quoted
        )
        options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
        ran = subprocess.run(
            [shell, *options, "-c", text], capture_output=True, text=True, check=False
        )
        assert ran.stderr == ""
        found = [offer.split("\t")[0] for offer in ran.stdout.splitlines()]
        # zsh itself selects those with the typed prefix.
        return {it for it in found if it == "<files>" or (it and it.startswith(words[-1]))}

    return ask


def test_commands_are_offered(offers):
    assert {"serve", "topic", "produce", "dump-log"} <= offers("kctl ")
    assert offers("kctl topic d") == {"describe", "delete"}
    assert offers("kctl -b x:1 topic d") == {"describe", "delete"}


def test_options_and_their_values_are_offered(offers):
    assert offers("kctl topic create --part") == {"--partitions"}
    assert offers("kctl topic list -o ") == {"table", "json", "ndjson", "yaml", "csv", "name"}
    assert offers("kctl produce t --compression z") == {"zstd"}


def test_arguments_are_offered_by_their_place(offers):
    assert offers("kctl completion ") == {"bash", "zsh", "fish", "install"}
    assert offers("kctl completion install ") >= {"bash", "zsh", "fish"}
    assert offers("kctl config describe ") == {"topic", "broker", "logger"}


@pytest.mark.parametrize(
    "command", ["dump-log", "verify-log", "repair-log", "export", "import", "export --out x"]
)
def test_paths_are_offered(offers, tmp_path, monkeypatch, command):
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders.csv").touch()
    monkeypatch.chdir(tmp_path)

    found = offers(f"kctl {command} ord")

    # The test of zsh replaces its _files.
    assert found in ({"orders-0", "orders.csv"}, {"orders-0/", "orders.csv"}, {"<files>"})


def test_brokers_are_offered_for_their_configs(offers, address, monkeypatch):
    monkeypatch.setenv("KCTL_COMPLETION_TIMEOUT_MS", "60000")

    brokers = offers(f"kctl broker describe -b {address} ")
    assert brokers
    assert all(it.isdigit() for it in brokers)
    assert offers(f"kctl config describe -b {address} broker ") == {*brokers, "default"}


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", "data/bash-completion/completions/kctl"),
        ("zsh", "data/zsh/site-functions/_kctl"),
        ("fish", "config/fish/completions/kctl.fish"),
    ],
)
def test_a_script_is_installed_where_the_shell_looks_for_it(
    kctl, tmp_path, monkeypatch, shell, file
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")

    ran = kctl("completion", "install")

    assert ran.status == 0
    assert (tmp_path / file).read_text() == script(Shell(shell))
    assert str(tmp_path / file) in ran.err


def test_names_come_from_the_cluster(offers, on, address, topic, name, monkeypatch):
    # A busy machine may need more than half a second.
    monkeypatch.setenv("KCTL_COMPLETION_TIMEOUT_MS", "60000")
    on("produce", topic, "v")
    on("consume", topic, "-g", f"{name}-group", "-e")

    assert topic in offers(f"kctl consume -b {address} t-")
    assert topic in offers(f"kctl topic delete -b {address} --yes t-")
    assert f"{name}-group" in offers(f"kctl group describe -b {address} t-")
    assert topic in offers(f"kctl config describe -b {address} topic t-")
    assert offers(f"kctl config describe -b {address} ") == {"topic", "broker", "logger"}


def test_an_unreachable_cluster_offers_nothing_and_prints_no_error(offers):
    assert offers("kctl consume -b 127.0.0.1:1 ") == set()


def test_a_cluster_that_does_not_answer_is_not_waited_for():
    """The server accepts and never responds; the alarm ends the command, whatever the timeouts."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ran = subprocess.run(
            [sys.executable, "-m", "kctl", "__complete", "topics", "", "-b", f"127.0.0.1:{port}"],
            capture_output=True,
            check=False,
            timeout=120,
        )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
