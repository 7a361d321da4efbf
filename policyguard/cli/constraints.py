"""`policyguard constraints`: list, explain, revoke and copy learned constraints."""

from __future__ import annotations

import getpass
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import click
import msgspec
from msgspec.structs import replace

from policyguard.cli.executors import executor_options, open_executor
from policyguard.cli.options import (
    FilePath,
    Recordings,
    columns_option,
    policy_option,
    store_option,
    where_option,
)
from policyguard.cli.terminal.progress import track_progress
from policyguard.cli.terminal.status import (
    EXIT_INTERRUPTED,
    policy_error,
    reports_errors,
    status,
    suggest_next,
    usage_error,
)
from policyguard.engines.input_file import open_input
from policyguard.journal.folder import file_name
from policyguard.model.diagnostic import PolicyError
from policyguard.report.constraints import render_constraint, render_constraints, render_observation
from policyguard.report.escape import for_json, for_terminal, json_document
from policyguard.simulate.jobs.job import Job, JobInputs, Key, StoppedError, WorkerError
from policyguard.simulate.learning import find_ordered_entries, learn_constraints
from policyguard.store import constraint_records
from policyguard.store.constraint_records import ConstraintImportError
from policyguard.store.errors import StoreError
from policyguard.store.json_lines import read_lines
from policyguard.store.opening import open_named_store
from policyguard.store.paths import find_journal_folder
from policyguard.store.protocol import Store
from policyguard.traces import Skipped, TraceError, expand
from policyguard.traces.reader import find_call

_EXIT_NOTHING = 1
_STDIN = Path("-")


@click.group()
@store_option
def constraints() -> None:
    """List, explain, revoke, copy and learn constraints."""


def _open_store(path: str | Path, *, write: bool = False) -> Store:
    return open_named_store(path, caps=None, read_only=not write)


_format_option = click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text"
)


@constraints.command("list", epilog="Example: policyguard constraints list --store state.db")
@click.option("--revoked", is_flag=True, help="List revoked ones, too.")
@_format_option
@store_option
@click.pass_obj
@reports_errors(StoreError, ConstraintImportError, OSError)
def list_command(store: str | Path, output_format: str, *, revoked: bool) -> None:
    """List the constraints."""
    stored = list(constraint_records.list_constraints(_open_store(store), include_revoked=revoked))
    if output_format == "json":
        click.echo(json_document([_to_json(stored) for stored in stored]))
    else:
        click.echo(render_constraints((stored.constraint, stored.state) for stored in stored))
        if stored:
            suggest_next(
                "`policyguard constraints explain ID` shows the calls that taught a constraint; "
                "`revoke ID` lifts it for good"
            )


@constraints.command(
    "show", epilog="Example: policyguard constraints show k1f0c2a4b6d8e --store state.db"
)
@click.argument("id_", metavar="ID")
@_format_option
@store_option
@click.pass_obj
@reports_errors(StoreError, ConstraintImportError, OSError)
def show_command(store: str | Path, id_: str, output_format: str) -> None:
    """Show what a constraint bans, where, how it was learned, and the first call that failed.

    The call is read from the journals beside the store; `explain` shows the others.
    """
    opened = _open_store(store)
    stored = _get_constraint(opened, id_)
    if output_format == "json":
        click.echo(json_document(_to_json(stored)))
    else:
        _echo_constraint(opened, stored, stored.constraint.taught_by[:1])


@constraints.command(
    "explain", epilog="Example: policyguard constraints explain k1f0c2a4b6d8e --store state.db"
)
@click.argument("id_", metavar="ID")
@store_option
@click.pass_obj
@reports_errors(StoreError, ConstraintImportError, OSError)
def explain_command(store: str | Path, id_: str) -> None:
    """Show the calls that a constraint was learned from.

    They are read from the journals beside the store.
    """
    opened = _open_store(store)
    stored = _get_constraint(opened, id_)
    _echo_constraint(opened, stored, stored.constraint.taught_by)


@constraints.command(
    "revoke",
    epilog="Example: policyguard constraints revoke k1f0c2a4b6d8e --by ann --store state.db",
)
@click.argument("id_", metavar="ID")
@click.option("--by", default=None, help="The person who revokes it.  [default: the current user]")
@store_option
@click.pass_obj
@reports_errors(StoreError, ConstraintImportError, OSError)
def revoke_command(store: str | Path, id_: str, by: str | None) -> None:
    """Revoke a constraint, for every process. It is not learned again."""
    _get_constraint(_open_store(store), id_)  # do not create a store
    opened = _open_store(store, write=True)
    if opened.constraints.revoke(id_, by=by or getpass.getuser(), at=time.time_ns()) is None:
        _fail_unknown(id_)
    click.echo(f"{for_terminal(id_)} is revoked")


@constraints.command(
    "export", epilog="Example: policyguard constraints export --store state.db > learned.jsonl"
)
@store_option
@click.pass_obj
@reports_errors(StoreError, ConstraintImportError, OSError)
def export_command(store: str | Path) -> None:
    """Print the active constraints, one JSON object per line."""
    for line in constraint_records.export_constraints(_open_store(store)):
        click.echo(for_json(line.decode()))


@constraints.command(
    "import", epilog="Example: policyguard constraints import learned.jsonl --store state.db"
)
@click.argument("file", type=FilePath(dir_okay=False, allow_dash=True))
@store_option
@click.pass_obj
@reports_errors(StoreError, ConstraintImportError, OSError)
def import_command(store: str | Path, file: Path) -> None:
    """Import exported constraints. What was revoked here stays revoked."""
    named: BinaryIO = sys.stdin.buffer if file == _STDIN else open_input(file)
    with named as lines:
        taken, refused = constraint_records.import_constraints(
            _open_store(store, write=True), constraint_records.parse_constraints(read_lines(lines))
        )
    skipped = f"; {refused} stay revoked" if refused else ""
    click.echo(f"{taken} imported{skipped}")


@constraints.command(
    "learn",
    epilog="Example: policyguard constraints learn recorded-runs/ --project web > learned.jsonl",
)
@click.argument("traces", nargs=-1, required=True, type=Recordings())
@policy_option
@click.option("--project", default="", help="The project of runs whose recording names none.")
@executor_options
@where_option
@columns_option
@store_option
@click.pass_context
@reports_errors(StoreError, TraceError, WorkerError, OSError)
def learn_command(
    context: click.Context,
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    project: str,
    workers: int,
    executor: str,
    address: str,
    where: str,
    columns: str,
) -> None:
    """Print what the policy would have learned from recorded runs, to review and import.

    TRACES are files, folders and globs. The constraints hold in the store that is named. Exit
    codes: 0; 1 (nothing was learned); 2 (misuse, or a broken policy); 130 (interrupted: nothing is
    printed).
    """
    job = Job(policies=policies, where=where, columns=columns)
    try:
        inputs = JobInputs.load(job)
    except PolicyError as error:
        policy_error(error)
    files = tuple(expand(traces))
    job.read_rows()
    key = Key(_open_store(context.obj, write=True).fingerprint_key)
    skipped: list[Skipped] = []
    try:
        with (
            open_executor(
                executor, address, workers, files, find_ordered_entries(inputs)
            ) as opened,
            track_progress(files) as on_progress,
        ):
            found = learn_constraints(
                replace(job, files=files, key=key),
                inputs,
                on_progress,
                opened,
                project=project,
                on_skipped=skipped.append,
            )
    except StoppedError:
        status("interrupted: a part of the runs teaches something else than all")
        context.exit(EXIT_INTERRUPTED)
    for item in skipped:
        status(f"skipped {item.file}: {item.reason}")
    for constraint in found:
        click.echo(for_json(msgspec.json.encode(constraint).decode()))
    status("1 constraint learned" if len(found) == 1 else f"{len(found)} constraints learned")
    context.exit(0 if found else _EXIT_NOTHING)


def _echo_constraint(
    store: Store, stored: constraint_records.StoredConstraint, calls: tuple[str, ...]
) -> None:
    """Print a constraint, and these of the calls that taught it."""
    click.echo(render_constraint(stored.constraint, stored.state, stored.revoked_by))
    for name in calls:
        session, _, call = name.rpartition("/")
        journal = _find_journals(store) / file_name(session)
        click.echo(render_observation(name, find_call(journal, call)))


def _find_journals(store: Store) -> Path:
    """Return the folder of the journals that are written on this machine beside a store."""
    return find_journal_folder(store) or Path()


def _get_constraint(store: Store, id_: str) -> constraint_records.StoredConstraint:
    stored = constraint_records.find_constraint(store, id_)
    if stored is None:
        _fail_unknown(id_)
    return stored


def _fail_unknown(id_: str) -> NoReturn:
    usage_error(f"no constraint has the id `{for_terminal(id_, 40)}`; see `constraints list`")


def _to_json(stored: constraint_records.StoredConstraint) -> dict[str, Any]:
    plain = msgspec.to_builtins(stored.constraint)
    return {**plain, "state": stored.state, "revoked_by": stored.revoked_by or None}
