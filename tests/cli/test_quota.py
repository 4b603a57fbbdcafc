"""kctl quota: quotas are listed, set and removed, of kctl's broker and of Apache Kafka."""

import json

import pytest


@pytest.fixture
def quota(kctl, address):
    """Run `kctl quota ...`."""
    return lambda *arguments, **options: kctl("quota", *arguments, "-b", address, **options)


def listed(quota, *arguments):
    rows = json.loads(quota("list", *arguments, "-o", "json").out)
    return {(it["entity"], it["quota"]): it["value"] for it in rows}


def test_quotas_come_and_go(quota):
    assert listed(quota, "--user", "ann") == {}
    ran = quota("set", "--user", "ann", "--produce", "10MB", "--request", "50", "-n")
    assert ran.status == 0
    assert "would set" in ran.out
    assert listed(quota, "--user", "ann") == {}
    assert quota("set", "--user", "ann", "--produce", "10MB", "--request", "50").status == 0
    names = ["--user", "ann", "--client-id", "a b"]
    assert quota("set", *names, "--consume", "1MiB").status == 0
    assert quota("set", "--default-client-id", "--mutations", "0.5").status == 0
    own = {
        ("user=ann", "producer_byte_rate"): 10_000_000,
        ("user=ann", "request_percentage"): 50,
        ("user=ann,client-id=a b", "consumer_byte_rate"): 1_048_576,
    }
    assert listed(quota, "--user", "ann") == own
    default = {("client-id=<default>", "controller_mutation_rate"): 0.5}
    assert listed(quota, "--default-client-id") == default
    # Others of the same entity stay.
    changed = json.loads(quota("set", "--user", "ann", "--produce", "1MiB", "-o", "json").out)
    assert [(it["before"], it["value"], it["status"]) for it in changed] == [
        (10_000_000, 1_048_576, "set")
    ]
    assert quota("remove", "--user", "ann", "--quota", "producer_byte_rate").status != 0, (
        "ask first"
    )
    assert quota("remove", "--user", "ann", "--quota", "producer_byte_rate", "--yes").status == 0
    assert quota("remove", *names, "--yes").status == 0
    assert listed(quota, "--user", "ann") == {("user=ann", "request_percentage"): 50}
    assert quota("remove", "--user", "ann", "--yes").status == 0
    assert quota("remove", "--default-client-id", "--yes").status == 0
    assert "no such quota" in quota("remove", "--user", "ann", "--yes").err
    assert listed(quota, "--user", "ann") == {}


def test_a_client_id_with_a_line_break_begins_no_line_in_a_message(on):
    ran = on("quota", "remove", "--client-id", "x\x1b[1m\ny", "-y")
    assert "has no such quota" in ran.err
    assert not any(line.startswith("y") for line in ran.err.splitlines())


def test_a_quota_of_nothing_and_a_client_without_one_are_named_as_such(kctl, on):
    ran = kctl("quota", "set", "--user", "ann", "--produce", "0")
    assert (ran.status, ran.err.splitlines()) == (
        2,
        [
            "error: A rate of 0 stops clients",
            "hint: e.g. 10MB; kctl quota remove removes a quota",
        ],
    )
    assert on("quota", "list", "--user", "nobody").err == "No such client has a quota.\n"
