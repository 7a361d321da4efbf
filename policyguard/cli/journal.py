"""`policyguard journal`: show and verify journals, and export their anchors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from policyguard.cli.console import usage_error
from policyguard.cli.output import STDOUT, check_output, open_output
from policyguard.cli.verify import verify_command
from policyguard.journal.show import format_line, format_session, read_lines
from policyguard.journal.verify import anchor_lines
from policyguard.store.errors import StoreError
from policyguard.store.paths import default_store_path
from policyguard.store.sqlite.store import SqliteStore

_POLL_S = 0.2


@click.group()
def journal() -> None:
    """Show and verify journals, and export their anchors."""


journal.add_command(verify_command)


@journal.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Follow the file as it is written, until interrupted.")
def show(path: Path, *, follow: bool) -> None:
    """Show a journal or a trace in policyguard's format, one event per line.

    Times are UTC. Fingerprints, charges and hashes are left out.
    """
    shown = ""
    try:
        for line in _read_lines(path, follow=follow):
            session = format_session(line)
            if session and session != shown:
                shown = session
                click.echo(f"session {session}")
            click.echo(format_line(line))
    except KeyboardInterrupt:
        return


def _read_lines(path: Path, *, follow: bool) -> Iterator[bytes]:
    try:
        yield from read_lines(path, (lambda: time.sleep(_POLL_S)) if follow else None)
    except OSError as error:
        usage_error(f"{path}: cannot be read: {error.strerror}")


@journal.command()
@click.option(
    "--store", type=click.Path(path_type=Path), help="The store's file.  [default: the user's own]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=STDOUT,
    metavar="FILE",
    help="The file to write.  [default: standard output]",
)
def anchors(store: Path | None, output: Path) -> None:
    """Write the anchors, one per line. Keep them where agents and their users cannot write.

    `policyguard journal verify --anchor FILE` checks journals against them.
    """
    check_output(output, ())
    try:
        opened = SqliteStore(store or default_store_path(), caps=None, read_only=True)
        with open_output(output) as file:
            for line in anchor_lines(opened.anchors.all()):
                file.write(f"{line}\n".encode())
    except StoreError as error:
        usage_error(error)
