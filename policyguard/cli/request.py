"""What `policyguard check` and `policyguard record` share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from policyguard.adapters.client.connection import Unavailable
from policyguard.adapters.client.one_shot import request
from policyguard.cli.options import named_store_option, path_option
from policyguard.cli.terminal.status import policy_error, usage_error
from policyguard.model.diagnostic import PolicyError
from policyguard.model.errors import PolicyguardError

REFUSED = 1
"""The exit code for a call that must not run."""

_MAX_INPUT = 8 * 1024 * 1024


def request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say who answers."""
    for option in (
        click.option("--alone", is_flag=True, help="Do not use the service, and start none."),
        path_option("--socket", "socket_path", help_="The service's socket."),
        named_store_option(),
    ):
        command = option(command)
    return command


def send(
    path: str,
    policies: tuple[str, ...],
    store: str | Path | None,
    socket_path: Path | None,
    *,
    alone: bool,
) -> str:
    """Send standard input to the service, print the answer, and return it; exit if it failed."""
    body = sys.stdin.buffer.read(_MAX_INPUT + 1)
    if len(body) > _MAX_INPUT:
        usage_error(f"standard input is longer than {_MAX_INPUT} bytes")
    try:
        status, answer = request(path, body, policies, store, socket_path, alone=alone)
    except PolicyError as error:
        policy_error(error)
    except (PolicyguardError, Unavailable, OSError) as error:
        usage_error(error)
    text = answer.decode("utf-8", "replace")
    if status != 200:
        usage_error(json.loads(text)["detail"])
    click.echo(text)
    return text
