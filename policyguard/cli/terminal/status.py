"""Status messages of commands on standard error, and their exit codes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import click

from policyguard.report.escape import for_terminal
from policyguard.report.style import PLAIN, Style

Command = Callable[..., None]

EXIT_USAGE, EXIT_INTERRUPTED = 2, 130
"""Exit codes: for misuse or a broken policy; for Ctrl-C, as in shells."""


def status(text: str) -> None:
    """Print a message to standard error, after the command's name. Untrusted text is escaped."""
    click.echo(f"policyguard {_command_name()}: {for_terminal(text)}", err=True)


def usage_error(reason: object) -> NoReturn:
    """Print why a command cannot do what was asked, and exit."""
    status(str(reason))
    click.get_current_context().exit(EXIT_USAGE)


def policy_error(diagnostics: object) -> NoReturn:
    """Print the diagnostics of a policy, and exit."""
    click.echo(str(diagnostics), err=True)
    click.get_current_context().exit(EXIT_USAGE)


def reports_errors(*kinds: type[Exception]) -> Callable[[Command], Command]:
    """Decorate a command so that errors of these kinds, such as `OSError`, are usage errors."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> None:
            try:
                command(*args, **kwargs)
            except BrokenPipeError:  # the reader has read enough: click exits silently
                raise
            except kinds as error:
                if isinstance(error, OSError) and error.filename is not None:
                    usage_error(f"`{error.filename}`: {error.strerror}")
                usage_error(error)

        return run

    return decorate


def terminal_style() -> Style:
    """Return the style of text on standard output: plain if that is not a terminal."""
    if not sys.stdout.isatty():
        return PLAIN
    size = shutil.get_terminal_size()
    coloured = not os.environ.get("NO_COLOR")
    return Style(coloured=coloured, width=size.columns, height=size.lines)


def suggest_next(text: str, output_format: str = "text") -> None:
    """Print on standard error what to do next, if a person reads it: text at a terminal."""
    if output_format == "text" and sys.stdout.isatty() and sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        style = Style(coloured=False, width=width)
        click.echo(style.join([f"next  {for_terminal(text)}"]), err=True)


def _command_name() -> str:
    names: list[str] = []
    context: click.Context | None = click.get_current_context()
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(names)
