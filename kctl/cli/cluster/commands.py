"""kctl cluster: describes brokers, and registers the commands of the other modules."""

from kctl.cli.cluster.features import features, upgrade_features
from kctl.cli.cluster.health import health
from kctl.cli.cluster.quorum import quorum
from kctl.cli.declaration.command import DANGEROUS, READS, remote_command
from kctl.cli.declaration.declarations import CommandGroup
from kctl.cli.failures import DONE
from kctl.cli.output import Table
from kctl.cli.session import Session

app = CommandGroup()


@remote_command(app, "describe", READS)
def describe(session: Session) -> int:
    """Show the brokers, the controller, the cluster's id, and the load of each broker.

    \b
    Examples:
      kctl cluster describe
      kctl cluster describe -o json
    """
    from kctl.admin.broker_loads import describe_brokers

    cluster, loads = session.run(describe_brokers)
    brokers = [
        {
            "broker": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.is_controller,
            "leaders": loads[broker.broker_id].leaders,
            "replicas": loads[broker.broker_id].replicas,
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


remote_command(app, "health", READS)(health)
remote_command(app, "quorum", READS)(quorum)
remote_command(app, "features", READS)(features)
remote_command(app, "upgrade-features", DANGEROUS)(upgrade_features)
