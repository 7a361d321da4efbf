"""Where a command's output goes: a file as a whole, or what is no file, as it comes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

import click

from policyguard.cli.console import EXIT_USAGE, usage_error
from policyguard.traces import is_input_file
from policyguard.traces.input_paths import resolve_path

STDOUT = Path("-")
"""The name of standard output."""
_STDOUT_PATHS = (STDOUT, Path("/dev/stdout"))
"""All its names: where it goes into a file, that has another's lines, too."""


def check_output(output: Path, traces: Iterable[Path]) -> None:
    """Find what is wrong with the place of the output before long work, not after it."""
    if is_input_file(output, traces):
        usage_error(f"`{output}` is among the traces to be read")
    if not output.parent.is_dir():
        usage_error(f"`{output}` cannot be written: there is no folder `{output.parent}`")


@contextmanager
def open_output(output: Path) -> Iterator[IO[bytes]]:
    """What to write into; `-` is standard output. Ends the command where it cannot be written.

    A file takes its place at the end, whole, and after an error not at all; a link goes on to
    point at it. A device or a pipe stays what it is, and is written into.
    """
    try:
        if output in _STDOUT_PATHS:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif output.exists() and not output.is_file():
            with output.open("wb") as file:
                yield file
        else:
            with _replace_file(Path(resolve_path(output))) as file:
                yield file
    except BrokenPipeError:  # a reader that has read enough: no fault of anybody's
        raise
    except OSError as error:
        usage_error(f"`{output}` cannot be written: {error.strerror or error}")


def write(output: Path, text: str) -> None:
    """Write all of it or nothing."""
    with open_output(output) as file:
        file.write((text.removesuffix("\n") + "\n").encode())


def exit_unwritable(error: OSError) -> NoReturn:
    """End a command whose report standard output does not take; any other error goes on."""
    if error.filename is not None:
        raise error
    # Python would try again at the end, and say so in words of its own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    reason = error.strerror or error
    click.echo(f"policyguard: standard output cannot be written: {reason}", err=True)
    sys.exit(EXIT_USAGE)


@contextmanager
def _replace_file(path: Path) -> Iterator[IO[bytes]]:
    # Not a file of `tempfile`: a new one is to have the rights that any new file has.
    new = path.with_name(f".policyguard-{os.urandom(8).hex()}")
    try:
        with new.open("xb") as file:
            yield file
        if path.exists():
            shutil.copymode(path, new)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
