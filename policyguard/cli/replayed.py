"""What the commands over recorded runs have in common: options, and where their output goes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from policyguard.cli.aside import misuse
from policyguard.traces import among

HERE = "policyguard.yaml"

policy_option = click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE_OR_PACK",
    callback=lambda _, __, given: given or ((HERE if Path(HERE).is_file() else "core"),),
    help=f"A policy file or a pack's name; repeat it to lay one over the other. "
    f"[default: {HERE} here, else core]",
)
labels_option = click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help='JSONL of {"session", "success", "file"?}: which runs succeeded.',
)


def check_output(output: Path, traces: Iterable[Path]) -> None:
    """Find what is wrong with the place of the output before long work, not after it."""
    if among(output, traces):
        misuse(f"`{output}` is among the traces to be read")
    if not output.parent.is_dir():
        misuse(f"`{output}` cannot be written: there is no folder `{output.parent}`")


def write(output: Path, text: str) -> None:
    """Write all of it or nothing."""
    try:
        with click.open_file(str(output), "w", encoding="utf-8", atomic=True) as file:
            file.write(text.removesuffix("\n") + "\n")
    except OSError as error:
        misuse(f"`{output}` cannot be written: {error.strerror or error}")
