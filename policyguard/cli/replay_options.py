"""Options that commands over recorded runs share."""

from __future__ import annotations

from pathlib import Path

import click

DEFAULT_POLICY = "policyguard.yaml"

policy_option = click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE_OR_PACK",
    callback=lambda _, __, values: (
        values or ((DEFAULT_POLICY if Path(DEFAULT_POLICY).is_file() else "core"),)
    ),
    help=f"A policy file or a pack's name. Repeatable: later ones override earlier ones. "
    f"[default: {DEFAULT_POLICY} here, else core]",
)
labels_option = click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help='JSONL of {"session", "success", "file"?}: which runs succeeded.',
)
