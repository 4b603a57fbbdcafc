"""The two clusters of kctl mirror and kctl link create: each is the one that its own options name,
whatever variables and default profiles name for commands with one cluster."""

import json

import pytest

from kctl.cli import app
from kctl.testing.kafka_broker import KafkaBroker
from tests.mirror.conftest import Clusters


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory):
    sources = {"mirror.sources.dir": tmp_path_factory.mktemp("sources")}
    with KafkaBroker() as source, KafkaBroker(settings=sources) as target:
        yield Clusters(source, target)


@pytest.fixture
def ends(clusters, tmp_path, monkeypatch):
    """A topic `both` with other records on each side, `only` in the source, and a file and a
    profile for each side."""
    for topic in ("both", "only"):
        if topic not in clusters.source.topics:
            clusters.source.create_topic(topic)
            clusters.source.produce(topic, "of the source")
    if "both" not in clusters.target.topics:
        clusters.target.create_topic("both")
        clusters.target.produce("both", "of the target")
    profiles = ""
    for name, broker in (("source", clusters.source), ("target", clusters.target)):
        servers = broker.bootstrap_servers
        (tmp_path / f"{name}.properties").write_text(f"bootstrap.servers={servers}\n")
        profiles += f'[profiles.{name}]\nbootstrap_servers = "{servers}"\n'
    for name in ("KCTL_BOOTSTRAP_SERVER", "KCTL_PROFILE", "KCTL_EXPECT_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "kctl").mkdir()
    (tmp_path / "kctl" / "config.toml").write_text(profiles)
    return clusters


@pytest.fixture
def kctl(capfdbinary):
    def run(*words):
        capfdbinary.readouterr()
        status = app.run([str(word) for word in words])
        captured = capfdbinary.readouterr()
        return status, captured.out.decode(), captured.err.decode()

    return run


@pytest.fixture(params=["variable", "profile variable", "default profile"])
def names_the_target(request, ends, tmp_path, monkeypatch):
    """Something that names the target to commands with one cluster."""
    if request.param == "variable":
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", ends.target.bootstrap_servers)
    elif request.param == "profile variable":
        monkeypatch.setenv("KCTL_PROFILE", "target")
    else:
        config = tmp_path / "kctl" / "config.toml"
        config.write_text('default_profile = "target"\n' + config.read_text())


@pytest.fixture(params=["files", "profiles"])
def named(request, tmp_path):
    """The options that name both sides."""
    if request.param == "profiles":
        return "--source-profile", "source", "--target-profile", "target"
    files = (tmp_path / "source.properties", tmp_path / "target.properties")
    return "--source-config", files[0], "--target-config", files[1]


@pytest.mark.usefixtures("names_the_target")
def test_verify_compares_the_clusters_that_are_named(kctl, named):
    status, out, err = kctl("mirror", "verify", *named, "--topics", "both", "-o", "json")
    assert status == 1, err
    assert [it["result"] for it in json.loads(out)] != ["equal"]


@pytest.mark.usefixtures("names_the_target")
def test_a_mirror_plans_what_the_source_has(kctl, named):
    status, out, err = kctl("mirror", "plan", *named, "--topics", "only", "-o", "json")
    assert status == 0, err
    assert [(it["topic"], it["step"]) for it in json.loads(out)] == [("only", "create")]


@pytest.mark.usefixtures("names_the_target")
def test_a_link_follows_the_source_that_is_named(kctl, tmp_path):
    """The target of a link is the cluster of -b, of a variable or of a profile, as usual."""
    words = ("link", "create", "only", "--source", "east", "--dry-run", "-o", "json")
    status, out, err = kctl(*words, "--from-config", tmp_path / "source.properties")
    assert status == 0, err
    assert [(it["topic"], it["step"]) for it in json.loads(out)] == [("only", "create")]


def test_the_expected_cluster_is_the_one_that_changes(kctl, ends, named, monkeypatch):
    plan = ("mirror", "plan", *named, "--topics", "only")
    ids = []
    for broker in (ends.source, ends.target):
        status, out, err = kctl("cluster", "describe", "-b", broker.bootstrap_servers, "-o", "json")
        assert status == 0, err
        ids.append(json.loads(out)["cluster_id"])
    source_id, target_id = ids
    assert source_id != target_id
    monkeypatch.setenv("KCTL_EXPECT_CLUSTER", target_id)
    assert kctl(*plan)[0] == 0
    monkeypatch.setenv("KCTL_EXPECT_CLUSTER", source_id)
    status, _, err = kctl(*plan)
    assert status == 1
    assert f"This is the cluster {target_id}, not {source_id}: nothing was done" in err


@pytest.mark.parametrize("topic", ["by-options", "by-files"])
def test_settings_of_the_default_profile_go_to_neither_side(kctl, ends, tmp_path, topic):
    config = tmp_path / "kctl" / "config.toml"
    profile = '[profiles.other]\n"security.protocol" = "SSL"\n"client.id" = "other"\n'
    config.write_text(f'default_profile = "other"\n{config.read_text()}{profile}')
    ends.source.create_topic(topic)
    ends.source.produce(topic, "copied")
    servers = (ends.source.bootstrap_servers, ends.target.bootstrap_servers)
    words = {
        "by-options": ("--source", servers[0], "--target", servers[1], "--topics", topic),
        "by-files": (
            "--consumer.config", tmp_path / "source.properties",
            "--producer.config", tmp_path / "target.properties", "--whitelist", topic,
        ),
    }  # fmt: skip
    run = ("mirror", "run", *words[topic], "--name", topic, "--once", "--timeout", "10s")
    status, _, err = kctl(*run)
    assert status == 0, err
    assert [it.value for it in ends.target.records(topic)] == [b"copied"]
