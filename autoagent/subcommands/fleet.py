"""`autoagent fleet`: hundreds of runs under one budget."""

from autoagent.fleet.command_line import fleet_group
from autoagent.registry.plugins import imported_when_called
from autoagent.subcommands.flags import fleet_flags, given_in

fleet = fleet_group(
    fleet_flags,
    given_in,
    start=imported_when_called("autoagent.subcommands.run:start"),
    take_up=imported_when_called("autoagent.subcommands.resume:take_up"),
    start_team=imported_when_called("autoagent.subcommands.team:start_team"),
)
