"""`policyguard mcp -- COMMAND` and `policyguard mcp serve`: the proxy over stdio and HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from policyguard.adapters.mcp.settings import ProxyLimits
from policyguard.cli.options import named_store_option, policy_option
from policyguard.cli.terminal.status import policy_error, reports_errors, status, usage_error
from policyguard.model.diagnostic import PolicyError
from policyguard.model.errors import PolicyguardError

_store_option = named_store_option(
    "The store's file, or `postgresql://…`.  [default: memory alone]"
)
_session_option = click.option(
    "--session", default="", help="The session's id.  [default: what the client says, or a new one]"
)


def _limit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with options for what the proxy takes in at a time."""
    defaults = ProxyLimits()
    for name, default, text in (
        ("--max-waiting", defaults.max_waiting, "How many calls may wait until others end."),
        ("--max-calls", defaults.max_calls, "How many calls may run at a time."),
        ("--max-message", defaults.max_message, "Bytes of a message."),
    ):
        count = click.IntRange(min=0 if name == "--max-waiting" else 1)
        command = click.option(name, type=count, default=default, show_default=True, help=text)(
            command
        )
    return command


@click.command(
    epilog="Example: policyguard mcp --policy policyguard.yaml --server fs -- npx some-server"
)
@policy_option
@_store_option
@_session_option
@click.option("--server", default="", help="The server's name.  [default: the command's]")
@click.option(
    "--shared",
    is_flag=True,
    help="Share the session with the client's other servers; the service owns it.",
)
@_limit_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@reports_errors(PolicyguardError, OSError)
def run(
    policies: tuple[str, ...],
    store: str | Path | None,
    session: str,
    server: str,
    command: tuple[str, ...],
    *,
    shared: bool,
    **limits: int,
) -> None:
    """Start an MCP server and stand between it and the client on standard input and output."""
    try:
        from policyguard.adapters.mcp.stdio import StdioSettings, run_stdio
    except ImportError as error:
        usage_error(f"{error.name} is missing: pip install 'policyguard-engine[mcp]'")
    try:
        code = run_stdio(
            StdioSettings(
                policies, store, command, ProxyLimits(**limits), server, session, shared=shared
            )
        )
    except PolicyError as error:
        policy_error(error)
    click.get_current_context().exit(code)


@click.command(
    epilog="Example: policyguard mcp serve --policy p.yaml --upstream web=http://localhost:8931/mcp"
)
@policy_option
@_store_option
@_session_option
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    required=True,
    metavar="NAME=URL",
    help="A server, served at /NAME. Repeatable.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=8978, show_default=True)
@_limit_options
@reports_errors(PolicyguardError, OSError)
def serve(
    policies: tuple[str, ...],
    store: str | Path | None,
    session: str,
    upstreams: tuple[str, ...],
    host: str,
    port: int,
    **limits: int,
) -> None:
    """Serve MCP servers over streamable HTTP, each under its name."""
    try:
        from policyguard.adapters.mcp.http.server import read_upstreams, run_http
    except ImportError as error:
        usage_error(f"{error.name} is missing: pip install 'policyguard-engine[mcp]'")
    named = read_upstreams(upstreams)

    def announce(policy: str, bound: int) -> None:
        for name, url in named.items():
            status(f"serving {url} under {policy} at http://{host}:{bound}/{name}")

    try:
        run_http(
            policies,
            store,
            named,
            ProxyLimits(**limits),
            host=host,
            port=port,
            session=session,
            on_start=announce,
        )
    except PolicyError as error:
        policy_error(error)
