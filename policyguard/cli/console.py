"""`policyguard console`: the page on which people watch sessions and answer calls that wait."""

from __future__ import annotations

import getpass
import json
import sys
import time
import webbrowser
from pathlib import Path

import click

from policyguard.adapters.client.connection import Unavailable, post, serve_command, start
from policyguard.adapters.client.location import locate_socket
from policyguard.cli.options import file_option, named_store_option, path_option, policy_option
from policyguard.cli.terminal.status import policy_error, reports_errors, suggest_next, usage_error
from policyguard.compiler import compile_policy
from policyguard.model.diagnostic import PolicyError
from policyguard.store.paths import resolve_store

_SECONDS = 20.0


@click.command("console", epilog="Example: policyguard console --policy policyguard.yaml --by ann")
@policy_option
@named_store_option()
@path_option("--socket", "socket_path", help_="The service's socket.")
@file_option("--admin-token-file", help_="The token that the service wants from admins.")
@click.option("--by", default=None, help="Who answers there.  [default: the current user]")
@click.option("--label", "labels", multiple=True, help="A label that this person has.")
@click.option("--no-browser", is_flag=True, help="Print the address alone.")
@reports_errors(OSError)
def console(
    policies: tuple[str, ...],
    store: str | Path | None,
    socket_path: Path | None,
    admin_token_file: Path | None,
    by: str | None,
    labels: tuple[str, ...],
    *,
    no_browser: bool,
) -> None:
    """Open the page of the service: live sessions, and the calls that wait for you.

    The address lets anyone answer as you: it holds a token, which ends with the service.
    """
    path = resolve_store(store)
    chosen = str(socket_path or locate_socket(policies, path))
    token = "" if admin_token_file is None else admin_token_file.read_text().strip()
    body = json.dumps({"by": by or getpass.getuser(), "labels": [*labels]}).encode()
    url = _open(chosen, [*policies], [str(path)], body, token)
    click.echo(url)
    if not no_browser and sys.stdout.isatty():
        webbrowser.open(url)
    suggest_next("`policyguard approvals watch` does the same in a terminal")


def _require_policy(policies: list[str]) -> None:
    try:
        compile_policy(policies)
    except PolicyError as error:
        policy_error(error)


def _open(socket: str, policies: list[str], store: list[str], body: bytes, token: str) -> str:
    """Return the console's address, from the service, which is started if need be."""
    deadline = time.monotonic() + _SECONDS
    for is_last in (False, True):
        try:
            status, _, answer = post(socket, "/v1/console", body, timeout=_SECONDS, token=token)
        except Unavailable as error:
            _require_policy(policies)  # the service would end for it, and say why in its log alone
            serve = serve_command(socket, policies, store)
            if is_last or not start(socket, serve, timeout=deadline - time.monotonic()):
                usage_error(f"no service answers: {error}; see `policyguard serve`")
            continue
        found = json.loads(answer)
        if status != 200:
            usage_error(found["detail"])
        return str(found["url"])
    raise AssertionError
