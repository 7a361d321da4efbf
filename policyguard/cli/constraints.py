"""`policyguard constraints`: what has been learned, and taking it back."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from policyguard.cli.console import usage_error
from policyguard.journal.file_names import file_name
from policyguard.report.constraints import render_constraint, render_constraints, render_observation
from policyguard.report.escape import for_json, for_terminal, json_document
from policyguard.store import constraint_records
from policyguard.store.errors import StoreError
from policyguard.store.paths import default_store_path, journal_folder
from policyguard.store.sqlite.store import SqliteStore
from policyguard.traces.call_lookup import find_call


def _set_store(context: click.Context, _: click.Parameter, store: Path | None) -> None:
    context.obj = store or context.obj or default_store_path()


_store_option = click.option(
    "--store",
    type=click.Path(path_type=Path),
    callback=_set_store,
    expose_value=False,
    help="The store's file.  [default: the user's own]",
)
"""Of the group and of each command: it may stand before the command or after it."""


@click.group()
@_store_option
def constraints() -> None:
    """Look at what failures have taught, and take it back."""


def _report_errors(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are messages."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:  # who reads has read enough: click ends in silence
            raise
        except (StoreError, constraint_records.ConstraintImportError, OSError) as error:
            usage_error(error)

    return run


def _open_store(path: Path, *, write: bool = False) -> SqliteStore:
    return SqliteStore(path, caps=None, read_only=not write)


_format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text"
)


@constraints.command("list")
@click.option("--revoked", is_flag=True, help="Also those that were taken back.")
@_format_option
@_store_option
@click.pass_obj
@_report_errors
def list_command(store: Path, form: str, *, revoked: bool) -> None:
    """List the constraints."""
    found = list(constraint_records.list_constraints(_open_store(store), include_revoked=revoked))
    if form == "json":
        click.echo(json_document([_to_json(one) for one in found]))
    else:
        click.echo(render_constraints((one.constraint, one.state) for one in found))


@constraints.command("show")
@click.argument("id_", metavar="ID")
@_format_option
@_store_option
@click.pass_obj
@_report_errors
def show_command(store: Path, id_: str, form: str) -> None:
    """Show one constraint: what it bans, for whom, and which calls taught it."""
    found = _get_constraint(_open_store(store), id_)
    if form == "json":
        click.echo(json_document(_to_json(found)))
    else:
        click.echo(render_constraint(found.constraint, found.state, found.revoked_by))


@constraints.command("explain")
@click.argument("id_", metavar="ID")
@_store_option
@click.pass_obj
@_report_errors
def explain_command(store: Path, id_: str) -> None:
    """Tell which calls taught a constraint, as the journals beside the store have them."""
    kept = _open_store(store)
    found = _get_constraint(kept, id_)
    click.echo(render_constraint(found.constraint, found.state, found.revoked_by))
    for name in found.constraint.taught_by:
        session, _, call = name.rpartition("/")
        journal = journal_folder(kept.path) / file_name(session)
        click.echo(render_observation(name, find_call(journal, call)))


@constraints.command("revoke")
@click.argument("id_", metavar="ID")
@click.option("--by", default=None, help="Who revokes.  [default: the user]")
@_store_option
@click.pass_obj
@_report_errors
def revoke_command(store: Path, id_: str, by: str | None) -> None:
    """Take a constraint back, for every process; it is not learned again."""
    _get_constraint(_open_store(store), id_)  # nothing is made where no store is
    kept = _open_store(store, write=True)
    if kept.constraints.revoke(id_, by=by or getpass.getuser(), at=time.time_ns()) is None:
        _fail_unknown(id_)
    click.echo(f"{for_terminal(id_)} is revoked")


@constraints.command("export")
@_store_option
@click.pass_obj
@_report_errors
def export_command(store: Path) -> None:
    """Write the constraints that hold to standard output, one JSON object a line."""
    for line in constraint_records.export_constraints(_open_store(store)):
        click.echo(for_json(line.decode()))


@constraints.command("import")
@click.argument("file", type=click.File("rb"))
@_store_option
@click.pass_obj
@_report_errors
def import_command(store: Path, file: Any) -> None:
    """Take over constraints that were exported; what was revoked here stays revoked."""
    taken, refused = constraint_records.import_constraints(
        _open_store(store, write=True), constraint_records.parse_constraints(file)
    )
    more = f"; {refused} stay revoked" if refused else ""
    click.echo(f"{taken} taken{more}")


def _get_constraint(store: SqliteStore, id_: str) -> constraint_records.StoredConstraint:
    found = constraint_records.find_constraint(store, id_)
    if found is None:
        _fail_unknown(id_)
    return found


def _fail_unknown(id_: str) -> NoReturn:
    usage_error(f"none has the id `{for_terminal(id_, 40)}`")


def _to_json(stored: constraint_records.StoredConstraint) -> dict[str, Any]:
    plain = msgspec.to_builtins(stored.constraint)
    return {**plain, "state": stored.state, "revoked_by": stored.revoked_by or None}
