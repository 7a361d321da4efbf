"""`policyguard mcp install` and `uninstall`: clients' servers go through the proxy, or not."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from policyguard.adapters.installation.mcp.clients import MCP_CLIENTS
from policyguard.adapters.installation.mcp.routing import Proxy, proxy_arguments
from policyguard.adapters.installation.mcp.routing import install as route
from policyguard.adapters.installation.mcp.routing import uninstall as put_back
from policyguard.adapters.installation.records import (
    Records,
    read_records,
    write_records,
)
from policyguard.adapters.installation.settings import (
    read_settings,
    resolve_policies,
    show_change,
    write_settings,
)
from policyguard.cli.options import file_option, named_store_option, policy_option
from policyguard.cli.terminal.status import policy_error, reports_errors, status, usage_error
from policyguard.compiler import compile_policy
from policyguard.model.diagnostic import PolicyError
from policyguard.model.errors import PolicyguardError
from policyguard.report.escape import for_terminal
from policyguard.store.paths import absolute_store, default_store_path

_client = click.argument("client", type=click.Choice([*MCP_CLIENTS]))
_settings = file_option("--settings", help_="The client's settings file.  [default: the user's]")
_server = click.option(
    "--server", "servers", multiple=True, help="Only this server. Repeatable.  [default: all]"
)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


@click.command(epilog="Example: policyguard mcp install cursor --policy policyguard.yaml")
@_client
@policy_option
@named_store_option("The store's file, or `postgresql://…`.  [default: memory alone]")
@_settings
@_server
@click.option(
    "--address",
    default="http://127.0.0.1:8978",
    show_default=True,
    help="Where the proxy serves servers that are reached over HTTP.",
)
@_yes
@reports_errors(PolicyguardError, OSError)
def install(
    client: str,
    policies: tuple[str, ...],
    store: str | Path | None,
    settings: Path | None,
    servers: tuple[str, ...],
    address: str,
    *,
    yes: bool,
) -> None:
    """Show and write the entries of CLIENT's servers that go through the proxy.

    A server's command is started by the proxy; an address becomes one of the proxy's, which
    `policyguard mcp serve` has to serve.
    """
    try:
        compile_policy(policies)
    except PolicyError as error:
        policy_error(error)
    chosen = MCP_CLIENTS[client]
    file = settings or chosen.default_file()
    named = resolve_policies([*policies])
    arguments = proxy_arguments(named, None if store is None else absolute_store(store))
    proxy = Proxy(sys.executable, arguments, address.rstrip("/"))
    before, records = read_settings(file), read_records(_records_file(), file)
    try:
        routed = route(chosen, before, records, proxy, servers)
    except ImportError as error:
        usage_error(f"{error.name} is missing: pip install 'policyguard-engine[mcp]'")
    for note in routed.notes:
        status(f"left as it is: {note}")
    _apply(file, before, routed.text, routed.records, yes=yes)
    if routed.upstreams:
        served = [f"--upstream={name}={url}" for name, url in routed.upstreams.items()]
        policy = [part for one in named for part in ("--policy", one)]
        command = shlex.join(["policyguard", "mcp", "serve", *policy, *served])
        click.echo(f"next  {for_terminal(command)}")
    click.echo(f"next  {chosen.next_step}")


@click.command(epilog="Example: policyguard mcp uninstall cursor")
@_client
@_settings
@_server
@_yes
@reports_errors(PolicyguardError, OSError)
def uninstall(client: str, settings: Path | None, servers: tuple[str, ...], *, yes: bool) -> None:
    """Put the entries of CLIENT's servers back as they were."""
    chosen = MCP_CLIENTS[client]
    file = settings or chosen.default_file()
    before, records = read_settings(file), read_records(_records_file(), file)
    try:
        routed = put_back(chosen, before, records, servers)
    except ImportError as error:
        usage_error(f"{error.name} is missing: pip install 'policyguard-engine[mcp]'")
    _apply(file, before, routed.text, routed.records, yes=yes)


def _records_file() -> Path:
    return default_store_path().with_name("mcp-clients.json")


def _apply(file: Path, before: str, after: str, records: Records, *, yes: bool) -> None:
    change = show_change(file, before, after)
    if not change:
        status(f"{file} is as it should be")
        return
    click.echo("\n".join(map(for_terminal, change.splitlines())))
    if not yes:
        click.confirm(f"Write {file}?", abort=True)
    write_records(_records_file(), file, records)  # first: without it nothing could be put back
    write_settings(file, after)
