"""Define `autoagent fleet`: hundreds of runs under one budget."""

from autoagent.fleet.command_line import fleet_group
from autoagent.registry.plugins import lazy_function
from autoagent.subcommands.flags import fleet_flags, given_in

fleet = fleet_group(
    fleet_flags,
    given_in,
    start=lazy_function("autoagent.subcommands.run:start"),
    resume=lazy_function("autoagent.subcommands.resume:take_up"),
    start_team=lazy_function("autoagent.subcommands.team:start_team"),
)
