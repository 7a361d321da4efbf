"""What a command says beside its report, and how it ends where it cannot do what was asked."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from policyguard.report.escape import for_terminal

EXIT_USAGE, EXIT_INTERRUPTED = 2, 130
"""Exit codes: of what was asked wrongly or of a broken policy; of Ctrl-C, as shells have it."""


def status(text: str) -> None:
    """To standard error, with the command's name before it. The text may be anybody's."""
    click.echo(f"policyguard {_command_name()}: {for_terminal(text)}", err=True)


def usage_error(reason: object) -> NoReturn:
    """Say why it cannot be done, and end."""
    status(str(reason))
    click.get_current_context().exit(EXIT_USAGE)


def policy_error(diagnostics: object) -> NoReturn:
    """Show what is wrong with a policy, in the words and with the place of its diagnostics."""
    click.echo(str(diagnostics), err=True)
    click.get_current_context().exit(EXIT_USAGE)


def use_color(output_format: str) -> bool:
    """Whether a report of this form goes to a terminal, and `NO_COLOR` is not set."""
    return output_format == "text" and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _command_name() -> str:
    names: list[str] = []
    context: click.Context | None = click.get_current_context()
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(names)
