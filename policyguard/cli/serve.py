"""`policyguard serve`: the resident service."""

from __future__ import annotations

from pathlib import Path

import click

from policyguard.cli.options import file_option, named_store_option, path_option, policy_option
from policyguard.cli.terminal.status import policy_error, reports_errors, status, usage_error
from policyguard.model.diagnostic import PolicyError
from policyguard.model.errors import PolicyguardError
from policyguard.store.paths import resolve_store


@click.command(epilog="Example: policyguard serve --policy policyguard.yaml --store state.db")
@policy_option
@named_store_option()
@path_option(
    "--socket", "socket_path", help_="The Unix socket.  [default: one per policy and store]"
)
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", type=click.IntRange(1, 65535), help="Serve on this port, not on a socket.")
@file_option("--token-file", help_="With --port: the token's file (0600); made if there is none.")
@file_option("--admin-token-file", help_="The token that approvals, grants and reloads need.")
@click.option(
    "--idle", type=click.FloatRange(min=1), help="End after so many seconds without a request."
)
@reports_errors(PolicyguardError, OSError)
def serve(
    policies: tuple[str, ...],
    store: str | Path | None,
    socket_path: Path | None,
    host: str,
    port: int | None,
    token_file: Path | None,
    admin_token_file: Path | None,
    idle: float | None,
) -> None:
    """Own sessions, and decide on calls for hooks and other programs.

    It ends with Ctrl-C or SIGTERM, or when it is idle. Sessions go on where they were.
    """
    if (port is None) != (token_file is None):
        usage_error("--port and --token-file go together: other users can reach a port")
    if port is not None and socket_path is not None:
        usage_error("use --socket or --port, not both")
    try:
        from policyguard.adapters.client.location import locate_socket
        from policyguard.adapters.service.server import Service, read_token
    except ImportError as error:
        usage_error(f"{error.name} is missing: pip install 'policyguard-engine[service]'")
    path = resolve_store(store)
    token = read_token(token_file) if token_file is not None else ""
    admin_token = read_token(admin_token_file) if admin_token_file is not None else ""
    try:
        service = Service(policies, path, token=token, admin_token=admin_token, idle=idle)
    except PolicyError as error:
        policy_error(error)
    with service:
        if port is not None:
            service.run_port(host, port, status)
            return
        socket_path = socket_path or locate_socket(policies, path)
        service.run_socket(socket_path.absolute(), status)
