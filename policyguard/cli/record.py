"""`policyguard record`: report the result of one call."""

from __future__ import annotations

from pathlib import Path

import click

from policyguard.cli.options import policy_option
from policyguard.cli.request import request_options, send


@click.command(epilog="Example: policyguard record --policy policyguard.yaml < result.json")
@policy_option
@request_options
def record(
    policies: tuple[str, ...], store: Path | None, socket_path: Path | None, *, alone: bool
) -> None:
    """Report the result on standard input, and print as JSON what to tell the model.

    The result is JSON, such as {"session": "s1", "call": "c1", "result": "two files"}.

    `call` is the id that `policyguard check` has printed, or that the call was checked with.
    """
    send("/v1/record", policies, store, socket_path, alone=alone)
