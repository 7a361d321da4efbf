"""`policyguard check`: decide on one call."""

from __future__ import annotations

import json
from pathlib import Path

import click

from policyguard.cli.options import policy_option
from policyguard.cli.request import REFUSED, request_options, send


@click.command(epilog="Example: policyguard check --policy policyguard.yaml < call.json")
@policy_option
@request_options
def check(
    policies: tuple[str, ...], store: Path | None, socket_path: Path | None, *, alone: bool
) -> None:
    """Decide on the call on standard input, and print the decision as JSON.

    The call is JSON, such as {"session": "s1", "tool": "ls", "args": {}}.

    The call is counted if it may run: report its result with `policyguard record`. Exits with 0 if
    it may run, 1 if it is refused, 2 if it could not be checked: then it must not run.
    """
    answer = send("/v1/check", policies, store, socket_path, alone=alone)
    if not json.loads(answer)["allowed"]:
        click.get_current_context().exit(REFUSED)
