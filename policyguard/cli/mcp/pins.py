"""`policyguard mcp pin` and `policyguard mcp diff`: the tools of servers as they were reviewed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from policyguard.cli.options import file_option, policy_option
from policyguard.cli.terminal.status import policy_error, reports_errors, status, usage_error
from policyguard.model.diagnostic import PolicyError
from policyguard.model.errors import PolicyguardError
from policyguard.pins.changes import compare_servers
from policyguard.pins.warnings import find_warnings
from policyguard.report.pins import render_json, render_text

if TYPE_CHECKING:
    from policyguard.adapters.mcp.pinning import PinContext
    from policyguard.pins.lock import PinnedServer

_lock_option = file_option("--lock", help_="The lock.  [default: the policy's, else ./tools.lock]")
_server_option = click.option(
    "--server", default="", help="The server's name, as for the proxy.  [default: the command's]"
)
_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds that the server has to start and to list its tools.",
)
_target = click.argument(
    "target", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND... | URL"
)


@click.command(epilog="Example: policyguard mcp pin --server fs -- npx some-server /data")
@_server_option
@policy_option
@_lock_option
@_timeout_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@_target
@reports_errors(PolicyguardError, OSError)
def pin(
    server: str,
    policies: tuple[str, ...],
    lock: Path | None,
    timeout: float,
    target: tuple[str, ...],
    *,
    yes: bool,
) -> None:
    """Show a server's tools and pin them: write their definitions to the lock.

    Asks first if a pinned tool changed, or if something in a definition should be looked at: a
    pattern of the policy's `pins.finds`, hidden characters, letters that look like others.

    Exit codes: 0; 1 (not pinned); 2 (misuse, or no answer from the server).
    """
    context, name, found = _ask(server, policies, lock, timeout, target)
    old = context.lock.servers.get(name)
    changes = compare_servers(name, old, found)
    warnings = [*find_warnings(name, found, context.find_patterns)]
    click.echo(render_text(changes, warnings))
    if old == found:
        status(f"{context.file} is as it should be")
        return
    is_review = warnings or any(change.kind != "new" for change in changes)
    if is_review and not yes:
        click.confirm(f"Pin these tools in {context.file}?", abort=True)
    from policyguard.adapters.mcp.pinning import write_lock

    write_lock(context.file, context.lock.with_server(name, found))
    status(f"{len(found.tools)} tools of {name} are pinned in {context.file}")


@click.command(epilog="Example: policyguard mcp diff --server fs -- npx some-server /data")
@_server_option
@policy_option
@_lock_option
@_timeout_option
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@_target
@reports_errors(PolicyguardError, OSError)
def diff(
    server: str,
    policies: tuple[str, ...],
    lock: Path | None,
    timeout: float,
    output_format: str,
    target: tuple[str, ...],
) -> None:
    """Show what changed in a server's tools since they were pinned, word by word.

    Exit codes: 0 (no change); 1 (changes); 2 (misuse, or no answer from the server).
    """
    context, name, found = _ask(server, policies, lock, timeout, target)
    changes = compare_servers(name, context.lock.servers.get(name), found)
    changed = {change.tool for change in changes}
    warnings = [
        warning
        for warning in find_warnings(name, found, context.find_patterns)
        if warning.tool in changed
    ]
    render = render_json if output_format == "json" else render_text
    click.echo(render(changes, warnings))
    click.get_current_context().exit(1 if changes else 0)


def _ask(
    server: str,
    policies: tuple[str, ...],
    lock: Path | None,
    timeout: float,
    target: tuple[str, ...],
) -> tuple[PinContext, str, PinnedServer]:
    """Return the lock, the server's name, and the server as it is now."""
    try:
        from policyguard.adapters.mcp.pinning import open_lock
        from policyguard.adapters.mcp.server_tools import read_server_tools
    except ImportError as error:
        usage_error(f"{error.name} is missing: pip install 'policyguard-engine[mcp]'")
    try:
        context = open_lock(policies, lock)
    except PolicyError as error:
        policy_error(error)
    is_address = len(target) == 1 and target[0].startswith(("http://", "https://"))
    if is_address and not server:
        usage_error("name the server with --server, as for the proxy")
    found = read_server_tools(target[0] if is_address else target, timeout)
    return context, server or Path(target[0]).stem, found
