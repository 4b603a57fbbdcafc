"""kctl reassign: plan, execute, watch, verify, cancel, list, and the flags of Kafka's own tool."""

from kctl.cli.declaration.command import DANGEROUS, READS, remote_command
from kctl.cli.declaration.declarations import CommandGroup
from kctl.cli.reassign.cancel import cancel
from kctl.cli.reassign.execute import execute
from kctl.cli.reassign.kafka import kafka
from kctl.cli.reassign.plan import plan
from kctl.cli.reassign.watch import list_reassignments, verify, watch

app = CommandGroup()
remote_command(app, "plan", READS)(plan)
remote_command(app, "execute", DANGEROUS)(execute)
remote_command(app, "watch", READS)(watch)
remote_command(app, "verify", READS)(verify)
remote_command(app, "cancel", DANGEROUS)(cancel)
remote_command(app, "list", READS)(list_reassignments)
remote_command(app, "kafka", READS)(kafka)
