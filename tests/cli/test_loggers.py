"""Loggers: their levels at run time, `kctl serve --log-...`, and the lines of the request log."""

import json
import signal

import pytest

from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for

HOSTILE = "client\n[2026-01-01 00:00:00,000] INFO forged\x1b[2J\u202e\x7f\x85\"'"


@pytest.fixture
def broker_id(on):
    return str(on("cluster", "describe", "-o", "json").documents["controller"])


def levels(on, broker_id):
    ran = on("config", "describe", "logger", broker_id, "--all", "-o", "json")
    assert ran.status == 0, ran.err
    return {it["name"]: it["value"] for it in ran.documents}


def test_a_level_is_set_and_removed_at_run_time(on, broker_id):
    name = "state.change.logger"
    before = levels(on, broker_id)[name]
    set_one = on("config", "alter", "logger", broker_id, "-c", f"{name}=ERROR", "-y")
    assert set_one.status == 0, set_one.err
    assert levels(on, broker_id)[name] == "ERROR"
    removed = on("config", "alter", "logger", broker_id, "-d", name, "-y")
    assert removed.status == 0, removed.err

    after = levels(on, broker_id)
    assert after[name] == after["root"]
    on("config", "alter", "logger", broker_id, "-c", f"{name}={before}", "-y")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (["-c", "no.such.logger=INFO"], "Logger no.such.logger does not exist!"),
        (["-c", "root=LOUD"], "Cannot set the log level of root to LOUD"),
        (["-d", "root"], "Removing the log level of the root logger is not allowed"),
    ],
)
def test_what_is_no_level_of_a_logger_is_rejected(on, broker_id, change, reason):
    before = levels(on, broker_id)
    ran = on("config", "alter", "logger", broker_id, *change, "-y")

    assert ran.status == 1
    assert reason in ran.err + ran.out
    assert levels(on, broker_id) == before


def test_the_loggers_of_another_broker_are_elsewhere(on, broker_id):
    request = {"resources": [{"resourceType": 8, "resourceName": "77"}]}
    ran = on("api", "DescribeConfigs", json.dumps(request))

    assert f"Unexpected broker id, expected {broker_id} but received 77" in ran.out


def test_requests_are_logged_as_json_in_a_file_that_may_be_moved(kctl, tmp_path):
    log = tmp_path / "kctl.log"
    options = ["--log-format", "json", "--log-file", log, "--slow-requests", "0ms"]
    with KctlBroker(tmp_path, *map(str, options)) as broker:
        where = ["-b", broker.address]

        def lines_of(path):
            texts = path.read_text().split("\n")
            assert texts[-1] == ""
            return [json.loads(text) for text in texts[:-1]]

        def with_hostile_client(*words):
            ran = kctl(*words, "-X", f"client.id={HOSTILE}", *where)
            assert ran.status == 0, ran.err

        with_hostile_client("topic", "list")
        slow = [it for it in lines_of(log) if it["logger"] == "kafka.request.logger"]
        assert slow
        assert {it["level"] for it in slow} == {"WARN"}
        with_hostile_client(
            "config", "alter", "logger", "0", "-c", "kafka.request.logger=DEBUG", "-y"
        )
        log.rename(tmp_path / "old.log")
        broker.process.send_signal(signal.SIGHUP)
        wait_for(log.exists, lambda: "opened again")
        with_hostile_client("topic", "list")

        def completed():
            return [it for it in lines_of(log) if it["level"] == "DEBUG"]

        wait_for(lambda: any(it["apiKey"] == "METADATA" for it in completed()), lambda: "logged")
        line = completed()[-1]
        assert line["principal"] == "User:ANONYMOUS"
        assert line["totalTime"] >= line["localTime"] >= 0
        assert any("forged" in it["clientId"] for it in completed())
        text = log.read_text()
        assert text.isascii()
        assert all(it.isprintable() for it in text.split("\n"))


def test_text_lines_name_their_logger(kctl, tmp_path):
    log = tmp_path / "kctl.log"
    options = ["--log-file", log, "--log-level", "kafka.request.logger=DEBUG"]
    with KctlBroker(tmp_path, *map(str, options)) as broker:
        kctl("topic", "create", "t", "-b", broker.address)
        assert kctl("produce", "t", "v", "-b", broker.address).status == 0
        wait_for(lambda: "PRODUCE" in log.read_text(), log.read_text)
    lines = [it for it in log.read_text().splitlines() if "apiKey=PRODUCE" in it]

    assert lines
    assert all(it.endswith("(kafka.request.logger)") for it in lines)


def test_options_about_the_log_are_checked(kctl):
    assert kctl("serve", "--log-level", "loud").status == 2
    assert kctl("serve", "--log-level", "no.such.logger=INFO").status == 2
    assert kctl("serve", "--log-file-size", "1MB").status == 2
