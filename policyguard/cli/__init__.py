"""The command `policyguard`: one file a command, no logic."""

from __future__ import annotations

import atexit
import gc
import io
import sys
from importlib import import_module
from typing import Any

import click

_COMMANDS = (
    "approvals",
    "budgets",
    "bundle",
    "check",
    "console",
    "constraints",
    "explain",
    "grants",
    "hook",
    "init",
    "journal",
    "lint",
    "mcp",
    "policy",
    "record",
    "schema",
    "serve",
    "simulate",
    "store",
    "suggest",
    "test",
    "traces",
    "why",
)
_FIRST_STEPS = ("init", "lint", "test", "simulate", "explain")
"""What people use first, in this order; `--help` lists the other commands after them."""
_ALIASES = {"verify": "journal"}
"""Commands that have moved, and their modules: `verify` is `journal verify`. Not listed."""

_MEANT = {
    "convert": "traces convert",
    "diff": "policy diff",
    "new": "init",
    "replay": "simulate",
    "show": "policy show",
    "tune": "suggest",
    "validate": "lint",
}
"""Names that people try, and the commands that do this."""


class _Commands(click.Group):
    """The commands, each imported when it is used: importing all of them is slow."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if sys.stdout is None:
            click.echo("policyguard: standard output cannot be written: it is closed", err=True)
            sys.exit(2)
        if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
            # PYTHONUNBUFFERED: a write that takes only a part of the text would lose the rest.
            old = sys.stdout
            sys.stdout = open(  # noqa: SIM115 - open to the end of the process
                old.fileno(), "w", encoding=old.encoding, errors=old.errors, closefd=False
            )
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            from policyguard.cli.terminal.output import exit_unwritable

            exit_unwritable(error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click exits with 1, which is a result of many commands
            from policyguard.cli.terminal.status import EXIT_INTERRUPTED

            click.echo("policyguard: interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*_COMMANDS, *_ALIASES):
            return None
        names = vars(import_module(f"policyguard.cli.{_ALIASES.get(cmd_name, cmd_name)}")).values()
        commands = (value for value in names if isinstance(value, click.Command))
        return next(command for command in commands if command.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        others = [name for name in _COMMANDS if name not in _FIRST_STEPS]
        for title, names in (("First steps", _FIRST_STEPS), ("Other commands", others)):
            commands = [(name, self.get_command(ctx, name)) for name in names]
            width = formatter.width - 6 - max(map(len, _COMMANDS))
            rows = [
                (name, command.get_short_help_str(width))
                for name, command in commands
                if command is not None
            ]
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from policyguard.model.diagnostic import did_you_mean

            meant = _MEANT.get(args[0])
            hint = f"did you mean `{meant}`?" if meant else did_you_mean(args[0], _COMMANDS)
            raise click.UsageError(f"{error.message}{f' ({hint})' if hint else ''}", ctx) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="policyguard-engine", prog_name="policyguard")
def main() -> None:
    """Stop loops, repeated failures and runaway budgets before an agent's call runs."""
    # Skip the garbage collection at the end of the process: a tenth of the time of `lint`.
    atexit.register(gc.freeze)
