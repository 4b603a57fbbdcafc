"""What a process loads: a broker or a client without security pays nothing for security.

Start-up is import time. These tests look at modules, never at a clock.
"""

import json
import signal
import subprocess
import sys

import pytest

from kctl.broker.handlers import FREQUENT, HANDLERS

# Only for brokers and clients that are configured to authenticate, to authorize or to use TLS.
SECURITY = (
    "cryptography", "decimal", "hmac", "ssl",
    "kctl.broker.authorization", "kctl.broker.bearer_tokens", "kctl.broker.credentials",
    "kctl.broker.delegation_tokens", "kctl.broker.error_responses",
    "kctl.broker.handlers.acls", "kctl.broker.handlers.delegation_tokens",
    "kctl.broker.handlers.sasl", "kctl.broker.handlers.scram_credentials",
    "kctl.broker.network.authentication", "kctl.broker.network.sasl_exchange",
    "kctl.broker.security.acl_cache", "kctl.broker.security.authorizer",
    "kctl.client.security_settings", "kctl.client.token_source",
    "kctl.configs.listener_security", "kctl.configs.oauthbearer_configs",
    "kctl.configs.password_encoder", "kctl.protocol.acl_decisions", "kctl.protocol.acl_text",
    "kctl.protocol.sasl", "kctl.runtime.real.aws_signer", "kctl.tls",
)  # fmt: skip
# What the standard library loads slowly, and a start does not need.
SLOW = ("bz2", "difflib", "encodings.idna", "hashlib", "lzma", "shutil", "uuid")
# Written by the process itself as it ends, after everything that it needed.
REPORT = """
import atexit, json, sys
atexit.register(lambda: json.dump(sorted(sys.modules), open({path!r}, "w")))
"""


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """Run kctl in a process of its own and return the modules that it had loaded at its end."""
    report = tmp_path / "modules.json"
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(REPORT.format(path=str(report)))
    monkeypatch.setenv("PYTHONPATH", str(site))

    def run(*words, until_ready=False):
        command = [sys.executable, "-m", "kctl", *map(str, words)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        ) as process:
            if until_ready:
                line = process.stdout.readline()
                assert line.startswith("kctl ready"), process.stderr.read()
                process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return set(json.loads(report.read_text()))

    return run


def of_security(modules):
    return sorted(it for it in modules if it in SECURITY or it.startswith("kctl.tls."))


def test_a_broker_without_security_loads_none_of_it(loaded, tmp_path):
    modules = loaded("serve", "-D", tmp_path / "data", "--port", "0", until_ready=True)
    assert "kctl.broker.handlers.produce" in modules
    assert of_security(modules) == []
    assert modules.isdisjoint(SLOW)
    # Nor of links, but for what sees whether there are any.
    links = {it for it in modules if it.startswith("kctl.broker.links.")}
    assert links == {f"kctl.broker.links.{it}" for it in ("link_manager", "linked_partition")}


def test_a_broker_with_users_and_acls_has_loaded_them_when_it_is_ready(loaded, tmp_path):
    modules = loaded(
        "serve", "-D", tmp_path / "data", "--port", "0", "--user", "alice:secret",
        "--acl", "alice: Read topic:orders", until_ready=True,
    )  # fmt: skip
    # A client's first request must not wait for them.
    assert modules >= {
        "kctl.broker.authorization",
        "kctl.broker.credentials",
        "kctl.broker.network.authentication",
        "kctl.broker.security.authorizer",
    }


def test_the_version_loads_no_runtime_and_no_broker(loaded):
    modules = loaded("--version")
    assert of_security(modules) == []
    assert not {it for it in modules if it.startswith(("kctl.runtime.real.", "kctl.broker."))}


def test_a_command_on_a_cluster_without_security_loads_none_of_it(loaded, kctl_broker):
    modules = loaded("topic", "list", "-b", kctl_broker)
    assert "kctl.client.router" in modules
    assert of_security(modules) == []
    assert modules.isdisjoint({"bz2", "hashlib", "lzma", "shutil", "uuid"})
    assert not {it for it in modules if it.startswith("kctl.broker.")}
    assert "kctl.configs.broker_config" not in modules


def test_modules_are_imported_without_searches_for_cycles():
    code = (
        "import gc, sys, kctl.imports\n"
        "searches = []\n"
        "gc.callbacks.append(lambda phase, _: searches.append(phase))\n"
        "with kctl.imports.without_searches():\n"
        "    import kctl.broker.process\n"
        "    count = len(searches)\n"
        "print(count, gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "True"]


@pytest.mark.parametrize(("words", "searches"), [(["--help"], False), (["version"], True)])
def test_searches_for_cycles_begin_with_the_command(words, searches):
    code = (
        "import atexit, gc, runpy, sys\n"
        "atexit.register(lambda: print(gc.isenabled(), file=sys.stderr))\n"
        f"sys.argv = ['kctl', *{words}]\n"
        "runpy.run_module('kctl', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split()[-1] == str(searches)


def test_frequent_handlers_are_loaded_beside_the_first_requests():
    names = [f"kctl.broker.handlers.{name}" for name in FREQUENT]
    code = (
        "import sys, kctl.broker.process\n"
        "from kctl.broker.handlers import load_handlers\n"
        f"names = {names}\n"
        "print(sum(name in sys.modules for name in names))\n"
        "load_handlers()\n"
        "print(sum(name in sys.modules for name in names))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", str(len(names))]


def test_a_handler_that_is_loaded_later_exists():
    for handler in HANDLERS.values():
        module = __import__(handler.__module__, fromlist=[handler.__name__])
        assert callable(getattr(module, handler.__name__))
