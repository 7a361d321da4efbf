"""`policyguard mcp`: the proxy between MCP clients and servers, and what belongs to it."""

from __future__ import annotations

from importlib import import_module

import click

_MODULES = {
    "diff": "pins",
    "install": "install",
    "pin": "pins",
    "run": "proxy",
    "serve": "proxy",
    "uninstall": "install",
}
"""The commands of the group, and their modules, which are imported when they are used."""

_HIDDEN = "run"
"""The command that a `--` stands for: what follows it is a server's command."""


class _McpCommands(click.Group):
    """The commands of the group, each imported when it is used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and args[0] not in _MODULES:
            args = [_HIDDEN, *args]
        elif args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            raise click.UsageError("no command of a server: write it behind `--`", ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for name in _MODULES if name != _HIDDEN)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"{__name__}.{_MODULES[cmd_name]}")
        commands = (value for value in vars(module).values() if isinstance(value, click.Command))
        return next(command for command in commands if command.name == cmd_name)


@click.group(
    cls=_McpCommands,
    epilog="Example: policyguard mcp --policy policyguard.yaml -- npx some-mcp-server",
    subcommand_metavar="[OPTIONS] -- COMMAND... | COMMAND [ARGS]...",
)
def mcp() -> None:
    """Put a policy between an MCP client and its servers.

    What follows `--` is a server's command; `policyguard mcp run --help` lists the options that may
    stand before it.
    """
