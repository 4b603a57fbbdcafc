"""kctl broker: describe, decommission and demote brokers; list, stop, kill and restart those of a
local cluster.
"""

from typing import Annotated

from kctl.cli.broker.demote import demote
from kctl.cli.broker.describe import decommission, describe
from kctl.cli.broker.supervisor import ask_supervisor
from kctl.cli.declaration.command import (
    DANGEROUS,
    INT32_NUMBER,
    READS,
    local_command,
    remote_command,
)
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.output import Output, OutputFormat, Table

app = CommandGroup()
remote_command(app, "describe", READS)(describe)
remote_command(app, "decommission", DANGEROUS)(decommission)
remote_command(app, "demote", DANGEROUS)(demote)

BrokersArgument = Annotated[
    list[int],
    Argument(metavar="BROKER...", help="Ids, as `kctl broker list` shows them."),
    INT32_NUMBER,
]
DataDirOption = Annotated[
    str,
    Option("--data-dir", "-D", metavar="DIR", help="The data directory of `kctl serve --brokers`."),
]
OutputOption = Annotated[OutputFormat, Option("--output", "-o", help="How to print the result.")]


@local_command(app, "list")
def list_brokers(
    data_dir: DataDirOption = "kctl-data", output_format: OutputOption = OutputFormat.TABLE
) -> int:
    """List the brokers of a local cluster and their states.

    \b
    Examples:
      kctl broker list
      kctl broker list --data-dir /tmp/cluster -o json
    """
    return _command("list", [], data_dir, output_format)


@local_command(app, "stop")
def stop(
    brokers: BrokersArgument,
    data_dir: DataDirOption = "kctl-data",
    output_format: OutputOption = OutputFormat.TABLE,
) -> int:
    """Stop brokers cleanly: others take over their partitions. They stay down.

    \b
    Examples:
      kctl broker stop 2
    """
    return _command("stop", brokers, data_dir, output_format)


@local_command(app, "kill")
def kill(
    brokers: BrokersArgument,
    data_dir: DataDirOption = "kctl-data",
    output_format: OutputOption = OutputFormat.TABLE,
) -> int:
    """Kill brokers (kill -9), to test the others. They stay down.

    \b
    Examples:
      kctl broker kill 2
    """
    return _command("kill", brokers, data_dir, output_format)


@local_command(app, "restart")
def restart(
    brokers: BrokersArgument,
    data_dir: DataDirOption = "kctl-data",
    output_format: OutputOption = OutputFormat.TABLE,
) -> int:
    """Restart brokers one at a time; running ones are stopped cleanly first.

    \b
    Examples:
      kctl broker restart 1 2 3
    """
    return _command("restart", brokers, data_dir, output_format)


def _command(command: str, brokers: list[int], data_dir: str, output_format: OutputFormat) -> int:
    answer = ask_supervisor({"command": command, "brokers": brokers}, data_dir)
    rows = answer["rows"]
    title = f"local cluster in {data_dir}"
    if answer["zookeeper"]:
        title += f", ZooKeeper on {answer['zookeeper']}"
    table = Table(list(rows[0]), rows, title)
    Output(output_format).show_one(
        {"data_dir": data_dir, "zookeeper": answer["zookeeper"], "brokers": rows},
        [table],
        name="data_dir",
    )
    return DONE
