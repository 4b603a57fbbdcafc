"""kctl mirror: registers its commands."""

from kctl.cli.declaration.command import local_command
from kctl.cli.declaration.declarations import CommandGroup
from kctl.cli.mirror.plan import plan
from kctl.cli.mirror.run import run
from kctl.cli.mirror.status import status, watch
from kctl.cli.mirror.switch import switch
from kctl.cli.mirror.translate import translate
from kctl.cli.mirror.verify import verify

app = CommandGroup()
local_command(app, "run")(run)
local_command(app, "plan")(plan)
local_command(app, "verify")(verify)
local_command(app, "status")(status)
local_command(app, "translate")(translate)
local_command(app, "switch")(switch)
local_command(app, "watch")(watch)
