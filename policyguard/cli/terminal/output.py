"""Output of commands: files are replaced atomically, pipes and devices are written into."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import ENXIO
from pathlib import Path
from typing import IO, NoReturn

import click

from policyguard.cli.terminal.status import EXIT_USAGE, usage_error
from policyguard.engines.operating_system import O_CLOEXEC, O_NONBLOCK
from policyguard.traces import is_input_file
from policyguard.traces.input_paths import resolve_path

STDOUT = Path("-")
"""The path that means standard output."""
_STDOUT_PATHS = (STDOUT, Path("/dev/stdout"))
"""Paths of standard output, which is never replaced: it may contain other output."""


def check_output(output: Path, traces: Iterable[Path]) -> None:
    """Check that output can be written, before long work rather than after it."""
    if is_input_file(output, traces):
        usage_error(f"`{output}` is also an input; write to another file")
    if not output.parent.is_dir():
        usage_error(f"`{output}` cannot be written: folder `{output.parent}` does not exist")


@contextmanager
def open_output(output: Path) -> Iterator[IO[bytes]]:
    """Open output for writing; `-` is standard output. Exits if it cannot be written.

    A file is replaced at the end, and not after an error; a link then points at the new file.
    Devices and pipes are written into.
    """
    try:
        if output in _STDOUT_PATHS:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        elif output.exists() and not output.is_file():
            with _open_stream(output) as file:
                yield file
        else:
            with _replace_file(Path(resolve_path(output))) as file:
                yield file
    except BrokenPipeError:  # the reader has read enough: no error
        raise
    except OSError as error:
        if output in _STDOUT_PATHS:
            _drop_rest_of_stdout()
        usage_error(f"`{output}` cannot be written: {error.strerror or error}")


def write(output: Path, text: str | bytes) -> None:
    """Write a text, with a line feed at its end, or bytes: completely or not at all."""
    if isinstance(text, str):
        text = (text.removesuffix("\n") + "\n").encode()
    with open_output(output) as file:
        file.write(text)


def exit_unwritable(error: OSError) -> NoReturn:
    """Exit if standard output cannot be written; raise any other error."""
    if error.filename is not None:
        raise error
    _drop_rest_of_stdout()
    reason = error.strerror or error
    click.echo(f"policyguard: standard output cannot be written: {reason}", err=True)
    sys.exit(EXIT_USAGE)


def _drop_rest_of_stdout() -> None:
    # Else Python would try again at exit, and print an error of its own.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_stream(path: Path) -> IO[bytes]:
    """Open a pipe or device, but not a pipe that no program reads: it would wait for one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | O_NONBLOCK | O_CLOEXEC)
    except OSError as error:
        if error.errno != ENXIO:
            raise
        raise OSError(ENXIO, "no program reads from it", str(path)) from None
    if O_NONBLOCK:
        os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


@contextmanager
def _replace_file(path: Path) -> Iterator[IO[bytes]]:
    # Not by `tempfile`: a new file gets the usual permissions.
    temporary = path.with_name(f".policyguard-{os.urandom(8).hex()}")
    try:
        with temporary.open("xb") as file:
            yield file
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
