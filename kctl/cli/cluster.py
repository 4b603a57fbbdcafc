"""kctl cluster: what brokers there are and who the controller is."""

import typer

from kctl.cli.command import READS, remote_command
from kctl.cli.failures import DONE
from kctl.cli.output import Table
from kctl.cli.session import Session

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def _cluster() -> None:
    """Makes this a group even while it has one command."""


@remote_command(app, "describe", READS)
def describe(session: Session) -> int:
    """Show the brokers, the controller and the cluster's id.

    \b
    Examples:
      kctl cluster describe
      kctl cluster describe -o json
    """
    cluster = session.run(lambda admin: admin.cluster.describe())
    brokers = [
        {
            "broker": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.is_controller,
        }
        for broker in cluster.brokers
    ]
    document = {
        "cluster_id": cluster.cluster_id,
        "controller": None if cluster.controller_id < 0 else cluster.controller_id,
        "brokers": brokers,
    }
    table = Table(list(brokers[0]) if brokers else [], brokers, f"cluster {cluster.cluster_id}")
    session.output.show_one(document, [table], name="cluster_id")
    return DONE
