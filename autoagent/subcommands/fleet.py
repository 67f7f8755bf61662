"""Define `autoagent fleet`: hundreds of runs under one budget."""

from autoagent.fleet.command_line import fleet_group
from autoagent.registry.plugins import lazy_function
from autoagent.subcommands.flags import fleet_flags, merge_flags

fleet = fleet_group(
    fleet_flags,
    merge_flags,
    start=lazy_function("autoagent.subcommands.run:start"),
    resume=lazy_function("autoagent.subcommands.resume:resume_run"),
    start_team=lazy_function("autoagent.subcommands.team:start_team"),
)
