"""The command `policyguard`: one file a command, no logic."""

from __future__ import annotations

import atexit
import gc
import sys
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
_ALIASES = {"verify": "journal"}
"""Commands that have moved, and their modules: `verify` is `journal verify`. Not listed."""


class _Commands(click.Group):
    """The commands, each imported when it is used: importing all of them is slow."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if sys.stdout is None:
            click.echo("policyguard: standard output cannot be written: it is closed", err=True)
            sys.exit(2)
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
        names = vars(import_module(f"policyguard.cli.{_ALIASES.get(cmd_name, cmd_name)}")).values()
        commands = (value for value in names if isinstance(value, click.Command))
        return next(command for command in commands if command.name == cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from policyguard.model.diagnostic import did_you_mean

            hint = did_you_mean(args[0], _COMMANDS)
            raise click.UsageError(f"{error.message}{f' ({hint})' if hint else ''}", ctx) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="policyguard-engine", prog_name="policyguard")
def main() -> None:
    """Stop loops, repeated failures and runaway budgets before an agent's call runs."""
    # Skip the garbage collection at the end of the process: a tenth of the time of `lint`.
    atexit.register(gc.freeze)
