"""Commands that kctl prints for its user to run lead to the cluster of the command that ran."""

import shlex

import pytest

from kctl.cli.connect import ConnectOptions
from kctl.cli.output import Output, OutputFormat
from kctl.cli.session import Session


@pytest.mark.parametrize(
    ("options", "zookeeper", "expected"),
    [
        (ConnectOptions(), None, []),
        (ConnectOptions(bootstrap_server="kafka:9092"), None, ["-b", "kafka:9092"]),
        (ConnectOptions(profile="a b"), "zk:2181", ["-C", "a b", "--zookeeper", "zk:2181"]),
        (ConnectOptions(command_config="/c.conf"), None, ["--command-config", "/c.conf"]),
        (ConnectOptions(properties=["sasl.password=secret"]), None, []),
    ],
)
def test_a_proposed_command_names_the_cluster_and_no_secret(options, zookeeper, expected):
    session = Session(options, Output(OutputFormat.TABLE))
    text = session.command("reassign watch", zookeeper=zookeeper)
    assert shlex.split(text) == ["kctl", "reassign", "watch", *expected]
