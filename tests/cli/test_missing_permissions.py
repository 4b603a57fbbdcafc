"""Commands without permission: each names the permission that it lacks, and how to get it."""

import pytest

from kctl.testing.kafka_broker import KafkaBroker

SETTINGS = {"super.users": "User:root"}
ACLS = ["alice: Describe topic:seen, Describe group:seen"]


@pytest.fixture(scope="module")
def locked():
    users = {"alice": "secret", "root": "secret"}
    with KafkaBroker(
        topics=["seen", "hidden"], users=users, acls=ACLS, settings=SETTINGS
    ) as broker:
        yield broker


def test_a_client_without_a_login_learns_so_before_its_deadline(kctl, locked):
    ran = kctl("topic", "create", "new", "-b", locked.bootstrap_servers, "--timeout", "60s")

    assert ran.status == 3
    assert "4 times at the first request" in ran.err
    assert "hint: does the listener require authentication? set security.protocol" in ran.err


@pytest.fixture
def alice(kctl, locked):
    """Run a command as the user alice, who can see one topic and one group, with offsets."""

    def run(line, user="alice"):
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": "secret",
        }
        given = [f"-X{key}={value}" for key, value in login.items()]
        return kctl(*line.split(), "-b", locked.bootstrap_servers, *given)

    if not locked.records("seen"):
        locked.produce("seen", b"a record")
        assert run("consume seen -g seen --from-beginning --exit", user="root").status == 0
    return run


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("topic create new", "Create on Topic new"),
        ("topic alter seen -p 5", "Alter on Topic seen"),
        ("topic delete seen -y", "Delete on Topic seen"),
        ("topic purge seen -y", "Delete on Topic seen"),
        ("config describe topic seen", "DescribeConfigs on Topic seen"),
        ("config describe broker 0", "DescribeConfigs on Cluster"),
        ("config alter topic seen -c retention.ms=1 -y", "AlterConfigs on Topic seen"),
        ("consume seen --from-beginning --exit", "Read on Topic seen"),
        ("consume hidden --from-beginning --exit", "Describe on Topic hidden"),
        ("consume seen -g hidden --exit", "Describe on Group hidden"),
        ("consume seen -g seen --exit", "Read on Group seen"),
        ("group describe hidden", "Describe on Group hidden"),
        ("group delete seen -y", "Delete on Group seen"),
        ("acl list", "Describe on Cluster"),
        ("acl add bob read topic:seen", "Alter on Cluster"),
        ("user list", "Describe on Cluster"),
        ("user delete bob -y", "Describe on Cluster"),
        ("elect preferred seen", "Alter on Cluster"),
        ("reassign list", "Describe on Cluster"),
    ],
)  # fmt: skip
def test_the_permission_is_named(alice, line, needs):
    ran = alice(line)

    assert ran.status == 1, ran.err + ran.out
    assert f"needs {needs}" in " ".join((ran.out + ran.err).split())


def test_producing_needs_write(alice, tmp_path):
    (tmp_path / "lines").write_text("x\n")

    ran = alice(f"produce seen --file {tmp_path / 'lines'}")

    assert ran.status == 1
    assert "needs Write on Topic seen" in ran.err


@pytest.mark.parametrize("form", ["json", "yaml", "ndjson"])
def test_raw_responses_have_plain_numbers(alice, form):
    ran = alice(f'api DescribeAcls {{"operation":1,"permissionType":1}} -o {form}')

    assert ran.status == 1
    assert "31" in ran.out
    assert "errorCode is 31, CLUSTER_AUTHORIZATION_FAILED" in ran.err


def test_the_hint_is_a_command_that_a_super_user_runs(alice):
    ran = alice("acl list")

    assert ran.err.splitlines() == [
        "error: Cluster authorization failed: needs Describe on Cluster",
        "hint: an administrator of the cluster can allow it: kctl acl add USER describe cluster",
    ]


@pytest.mark.parametrize(
    "line", ["consume hidden --exit", "verify-log --replicas hidden", "acl check bob read topic:x"]
)
def test_the_hint_is_not_lost_where_an_error_names_the_topic_as_well(alice, line):
    ran = alice(line)

    assert "hint: an administrator of the cluster can allow it: kctl acl add USER describe " in (
        ran.err
    )
