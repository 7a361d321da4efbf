"""The command `policyguard`: one file a command, no logic."""

from __future__ import annotations

import atexit
import gc
from importlib import import_module
from typing import Any

import click

_COMMANDS = (
    "constraints",
    "explain",
    "init",
    "journal",
    "lint",
    "policy",
    "schema",
    "simulate",
    "suggest",
    "test",
    "traces",
)
_ALIASES = ("verify",)
"""Old names of commands that have moved: `verify` is `journal verify`. Not listed."""


class _Commands(click.Group):
    """The commands, each imported when it is asked for: what all of them need takes its time."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            from policyguard.cli.output import exit_unwritable

            exit_unwritable(error)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*_COMMANDS, *_ALIASES):
            return None
        inside = vars(import_module(f"policyguard.cli.{cmd_name}")).values()
        commands = (one for one in inside if isinstance(one, click.Command))
        return next(one for one in commands if one.name == cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="policyguard-engine", prog_name="policyguard")
def main() -> None:
    """Stop loops, repeated failures and runaway budgets before an agent's call runs."""
    # Python looks through all objects when it ends, to free what goes with the process anyway:
    # a tenth of what `lint` takes.
    atexit.register(gc.freeze)
