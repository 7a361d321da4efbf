"""`policyguard journal`: show and verify journals, and export their anchors."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click
import msgspec

from policyguard.cli.options import OUTPUT, FilePath, named_store_option, path_option
from policyguard.cli.terminal.output import STDOUT, check_output, open_output
from policyguard.cli.terminal.status import usage_error
from policyguard.compiler.load.scalars import parse_duration
from policyguard.engines.remote_files import open_target
from policyguard.journal.anchors.export import anchor_lines, read_anchors
from policyguard.journal.chain import Hasher, read_key
from policyguard.journal.errors import JournalError
from policyguard.journal.findings import UNPROVEN
from policyguard.journal.retention import prune
from policyguard.journal.retention_terms import Retention
from policyguard.journal.shipping import ship
from policyguard.journal.show import format_line, format_session, is_event, read_lines
from policyguard.journal.store_state import StoreState
from policyguard.journal.verify import VerifyResult, verify
from policyguard.report.escape import for_terminal, json_document
from policyguard.store.errors import StoreError
from policyguard.store.json_lines import MAX_LINE_BYTES
from policyguard.store.opening import open_named_store
from policyguard.store.paths import (
    default_store_path,
    find_journal_folder,
    journal_folder,
    resolve_store,
)
from policyguard.store.protocol import Store
from policyguard.store.sqlite.store import SqliteStore

_POLL_S = 0.2


@click.group()
def journal() -> None:
    """Show and verify journals, and export their anchors."""


@journal.command(epilog="Example: policyguard journal show state/journal/run-1-0a1b.jsonl")
@click.argument("path", type=FilePath())
@click.option("--follow", is_flag=True, help="Follow the file as it is written, until interrupted.")
def show(path: Path, *, follow: bool) -> None:
    """Show a journal, one event per line.

    PATH may also be a trace in policyguard's format. Times are UTC. Fingerprints, charges and
    hashes are left out.
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
    """Yield a journal's lines. Exit if there is no event among them."""
    has_event, held_bytes = False, 0
    held: list[bytes] = []
    try:
        for line in read_lines(path, (lambda: time.sleep(_POLL_S)) if follow else None):
            has_event = has_event or is_event(line)
            held.append(line)
            held_bytes += len(line)
            if has_event:
                yield from held
                held.clear()
            elif held_bytes > MAX_LINE_BYTES:
                break
    except IsADirectoryError:
        usage_error(f"{path}: is a folder; name one of its journals")
    except OSError as error:
        usage_error(f"{path}: cannot be read: {error.strerror}")
    if not has_event:
        usage_error(
            f"{path}: is not a journal, since it has no event; "
            "`policyguard traces stats` says what other formats contain"
        )


@journal.command(epilog="Example: policyguard journal anchors --store state.db > anchors.jsonl")
@named_store_option()
@path_option(
    *OUTPUT, default=STDOUT, metavar="FILE", help_="The file to write.  [default: standard output]"
)
def anchors(store: str | Path | None, output: Path) -> None:
    """Write the anchors, and notes of pruned and repaired journals, one per line.

    Keep them where neither agents nor their users can write.
    `policyguard journal verify --anchor FILE` checks journals against them.
    """
    check_output(output, ())
    try:
        opened = open_named_store(store or default_store_path(), caps=None, read_only=True)
        with open_output(output) as file:
            for line in anchor_lines(chain(opened.anchors.all(), opened.anchors.notes())):
                file.write(f"{line}\n".encode())
    except StoreError as error:
        usage_error(error)


@journal.command(
    "prune", epilog="Example: policyguard journal prune --store state.db --older-than 30d"
)
@named_store_option()
@click.option(
    "--older-than",
    required=True,
    metavar="TIME",
    help="Delete journals whose last event is older, such as `30d`.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@path_option("--key", help_="The file with the key of the journals.")
def prune_command(
    store: str | Path | None, older_than: str, key: Path | None, *, dry_run: bool
) -> None:
    """Delete old journals now, whatever `journal.keep_for` says and the clock did before.

    Journals that do not verify, or that are being written, are kept; --dry-run does not look for
    the latter. The store notes what was deleted, for `policyguard journal verify`. Exit codes: 0; 1
    (a journal that is due was kept); 2 (misuse).
    """
    keep_for = parse_duration(older_than)
    if keep_for is None:
        usage_error(f"--older-than: `{older_than}` is not a time; write `60s`, `5m`, `2h` or `30d`")
    retention = Retention(
        keep_for=keep_for,
        max_journals=sys.maxsize,
        max_gap=0,
        policy="policyguard journal prune",
        digest="",
    )
    now = time.time_ns()
    try:
        opened, folder = _open_for_pruning(store, read_only=dry_run)
        result = prune(
            folder,
            opened.anchors,
            retention,
            now=now,
            before=now - keep_for,
            hasher=Hasher(read_key(key) if key is not None else None),
            lock_session=opened.lock_session,
            dry_run=dry_run,
        )
    except (JournalError, StoreError) as error:
        usage_error(error)
    for file in result.deleted:
        click.echo(for_terminal(str(file)))
    for kept in result.kept:
        click.echo(f"kept: {for_terminal(str(kept))}", err=True)
    what = "would be deleted" if dry_run else "deleted"
    click.echo(f"{len(result.deleted)} {what}, {len(result.kept)} kept", err=True)
    click.get_current_context().exit(1 if result.kept else 0)


@journal.command(
    "ship", epilog="Example: policyguard journal ship --store state.db s3://evidence/host-1"
)
@click.argument("target")
@click.argument("folders", nargs=-1, type=FilePath(file_okay=False))
@named_store_option()
@path_option("--key", help_="The file with the key of the journals.")
def ship_command(
    target: str, folders: tuple[Path, ...], store: str | Path | None, key: Path | None
) -> None:
    """Copy journals to TARGET: a folder, or an address such as `s3://…`.

    FOLDERS are by default the journals beside the store. A journal that does not verify is not
    copied; what is at the target and is not a beginning of the journal stays. Run it again and
    again: what is there is not sent again. Exit codes: 0; 1 (a journal was not copied); 2 (misuse).
    """
    try:
        opened, own_folder = _open_anchors(store)
        secret = read_key(key) if key is not None else None
        result = ship(
            folders or (own_folder,),
            open_target(target),
            lambda file: verify(
                [file], anchors=opened.anchors if opened is not None else None, key=secret
            ),
            lambda name: click.echo(for_terminal(name)),
        )
    except (JournalError, StoreError, OSError) as error:
        usage_error(error)
    for failure in result.failures:
        click.echo(f"not copied: {for_terminal(failure)}", err=True)
    shipped, failed = len(result.shipped), len(result.failures)
    click.echo(f"{shipped} copied, {result.unchanged} unchanged, {failed} not copied", err=True)
    click.get_current_context().exit(1 if failed else 0)


@journal.command("verify", epilog="Example: policyguard journal verify --store state.db")
@click.argument("paths", nargs=-1, type=FilePath())
@named_store_option(
    "The store with the anchors, or `postgresql://…`.  [default: the user's own, if it exists]"
)
@path_option("--anchor", help_="A file of exported anchors (policyguard journal anchors).")
@path_option("--key", help_="The file with the key of the journals.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def verify_command(
    context: click.Context,
    paths: tuple[Path, ...],
    store: str | Path | None,
    anchor: Path | None,
    key: Path | None,
    output_format: str,
) -> None:
    """Verify that no journal line was altered, added or removed.

    PATHS are files and folders, by default the journals beside the store. For a folder, missing
    journals are reported too: with a database, pass the folders of all hosts. Exit codes: 0
    (nothing was altered); 1 (something was altered, or that is unknown: of a file that is no
    journal, and of one without a line and without anchors); 2 (misuse, or no journal was found).
    """
    try:
        opened, own_folder = _open_anchors(store)
        named_paths = paths or (own_folder,)
        result = verify(
            named_paths,
            anchors=opened.anchors if opened is not None else None,
            exported=read_anchors(anchor) if anchor is not None else (),
            key=read_key(key) if key is not None else None,
            store=_state(opened) if isinstance(opened, SqliteStore) else None,
        )
    except (JournalError, StoreError, OSError) as error:
        usage_error(error)
    is_own = store is not None or anchor is not None or _is_named(own_folder, named_paths)
    if not result.files and (not result.findings or (not is_own and _only_lacks_files(result))):
        # Nothing read is not the same as nothing altered, nor as all files of another folder gone.
        named = ", ".join(map(str, named_paths))
        usage_error(
            f"{named}: no journals found; pass a journal, a folder of journals, or the store"
        )
    if output_format == "json":
        click.echo(json_document(msgspec.to_builtins(result.findings)))
    else:
        for finding in result.findings:
            location = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
            click.echo(f"{finding.severity}[{finding.code}]: {for_terminal(finding.message)}")
            click.echo(f"  --> {for_terminal(location)}")
            click.echo(f"   = help: {finding.help}")
    has_anchors = opened is not None or anchor is not None
    click.echo(_summary(result, has_anchors=has_anchors), err=True)
    has_evidence = has_anchors or result.lines > 0
    context.exit(1 if result.has_failed or not has_evidence else 0)


def _open_for_pruning(store: str | Path | None, *, read_only: bool) -> tuple[Store, Path]:
    """Return a store that exists, and the folder of its journals here."""
    named = resolve_store(store)
    if isinstance(named, Path) and not named.exists():
        usage_error(f"{named}: no store at this path; pass the path of one as `--store`")
    opened = open_named_store(named, caps=None, read_only=read_only)
    return opened, find_journal_folder(opened) or Path()


def _open_anchors(store: str | Path | None) -> tuple[Store | None, Path]:
    """Return the store with the anchors, if there is one, and the folder of its journals here."""
    own = default_store_path()
    if store is None and not own.exists():  # the user's own need not exist
        return None, journal_folder(own)
    opened = open_named_store(store or own, caps=None, read_only=True)
    return opened, find_journal_folder(opened) or Path()


def _state(store: SqliteStore) -> StoreState:
    return StoreState(store.path, store.count_lost(), store.find_edited())


def _is_named(folder: Path, paths: tuple[Path, ...]) -> bool:
    return os.path.realpath(folder) in map(os.path.realpath, paths)


def _only_lacks_files(result: VerifyResult) -> bool:
    return all(one.code in ("journal/missing-file", "journal/pruned") for one in result.findings)


def _summary(result: VerifyResult, *, has_anchors: bool) -> str:
    files = f"{result.files} journal{'' if result.files == 1 else 's'}"
    read = f"{files}, {result.lines} line{'' if result.lines == 1 else 's'}"
    errors = {one.code for one in result.findings if one.severity == "error"}
    if not result.files:
        missing = sum(one.code == "journal/missing-file" for one in result.findings)
        read = f"no journal was found, and {missing} {'is' if missing == 1 else 'are'} missing"
    conclusion = "nothing was altered"
    if not has_anchors and not result.lines and not errors:
        conclusion = "nothing to verify"
    if errors:
        is_proven = not errors.issubset(UNPROVEN)
        conclusion = (
            "something was altered" if is_proven else "unknown whether something was altered"
        )
    if any(one.code == "journal/adopted" for one in result.findings):
        conclusion += "; lines were adopted that had no anchor"
    if not has_anchors:
        conclusion += "; a cut tail or a missing file is only found with a store or --anchor"
    return f"{read}: {conclusion}"
