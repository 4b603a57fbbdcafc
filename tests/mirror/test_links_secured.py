"""A link to a cluster with TLS, SASL and ACLs needs what docs/mirroring.md lists."""

import pytest

from kctl.cli import app
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_link_logs_in_at_its_source_over_tls(tmp_path, monkeypatch, capfd, mechanism):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    sources = tmp_path / "sources"
    sources.mkdir()
    with (
        KafkaBroker(
            topics=["orders"], users={"link": "secret"}, security="SASL_SSL",
            acls=["User:link: Read,Describe,DescribeConfigs topic:orders"],
        ) as source,
        KafkaBroker(settings={"mirror.sources.dir": sources}) as target,
    ):  # fmt: skip
        for value in "123":
            source.produce("orders", value)
        properties = source.java_properties("link", mechanism=mechanism)
        file = sources / "east.properties"
        file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
        file.chmod(0o600)
        status = app.run(
            ["link", "create", "orders", "--source", "east", "--from", source.bootstrap_servers,
             "--from-config", str(file), "--yes", "-b", target.bootstrap_servers]
        )  # fmt: skip
        assert status == 0, capfd.readouterr()
        wait_for(
            lambda: target.end_offsets("orders") == {0: 3},
            lambda: "\n".join(target.log_lines),
        )
        assert [it.value for it in target.records("orders")] == [b"1", b"2", b"3"]
        # No secret is in the store, or shown.
        app.run(["config", "describe", "topic", "orders", "-b", target.bootstrap_servers])
        assert "secret" not in capfd.readouterr().out
