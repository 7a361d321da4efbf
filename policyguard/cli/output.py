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

from policyguard.cli.aside import MISUSE, misuse
from policyguard.traces import among
from policyguard.traces.paths import real

STANDARD = Path("-")
"""The name of standard output."""
_STANDARD = (STANDARD, Path("/dev/stdout"))
"""All its names: where it goes into a file, that has another's lines, too."""


def check_output(output: Path, traces: Iterable[Path]) -> None:
    """Find what is wrong with the place of the output before long work, not after it."""
    if among(output, traces):
        misuse(f"`{output}` is among the traces to be read")
    if not output.parent.is_dir():
        misuse(f"`{output}` cannot be written: there is no folder `{output.parent}`")


@contextmanager
def opened(output: Path) -> Iterator[IO[bytes]]:
    """What to write into; `-` is standard output. Ends the command where it cannot be written.

    A file takes its place at the end, whole, and after an error not at all; a link goes on to
    point at it. A device or a pipe stays what it is, and is written into.
    """
    try:
        if output in _STANDARD:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif output.exists() and not output.is_file():
            with output.open("wb") as file:
                yield file
        else:
            with _whole(Path(real(output))) as file:
                yield file
    except BrokenPipeError:  # a reader that has read enough: no fault of anybody's
        raise
    except OSError as error:
        misuse(f"`{output}` cannot be written: {error.strerror or error}")


def write(output: Path, text: str) -> None:
    """Write all of it or nothing."""
    with opened(output) as file:
        file.write((text.removesuffix("\n") + "\n").encode())


def unwritten(error: OSError) -> NoReturn:
    """End a command whose report standard output does not take; any other error goes on."""
    if error.filename is not None:
        raise error
    # Python would try again at the end, and say so in words of its own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    reason = error.strerror or error
    click.echo(f"policyguard: standard output cannot be written: {reason}", err=True)
    sys.exit(MISUSE)


@contextmanager
def _whole(place: Path) -> Iterator[IO[bytes]]:
    # Not a file of `tempfile`: a new one is to have the rights that any new file has.
    new = place.with_name(f".policyguard-{os.urandom(8).hex()}")
    try:
        with new.open("xb") as file:
            yield file
        if place.exists():
            shutil.copymode(place, new)
        new.replace(place)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
