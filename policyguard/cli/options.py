"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from policyguard.store.paths import default_store_path

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

DEFAULT_POLICY = "policyguard.yaml"
OUTPUT = ("-o", "--output")


def path_option(*names: str, help_: str, dir_okay: bool = True, **settings: Any) -> _Decorator:
    """Return an option whose value is a path."""
    type_ = click.Path(dir_okay=dir_okay, path_type=Path)
    return click.option(*names, type=type_, help=help_, **settings)


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
labels_option = path_option(
    "--labels",
    help_='Which runs succeeded: JSONL of {"session": …, "success": true}; "file" is optional.',
)


def _set_store(context: click.Context, _: click.Parameter, store: Path | None) -> None:
    context.obj = store or context.obj or default_store_path()


store_option = path_option(
    "--store",
    callback=_set_store,
    expose_value=False,
    help_="The store's file.  [default: the user's own]",
)
"""An option of a group and of each of its commands: it may come before the command or after it."""
