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

from policyguard.cli.aside import misuse
from policyguard.journal.names import file_name
from policyguard.report.constraints import render_lesson, render_list, render_one
from policyguard.report.escape import for_json, for_terminal, json_document
from policyguard.store import learned
from policyguard.store.durable import SqliteStore
from policyguard.store.errors import StoreError
from policyguard.store.place import default_store, journals_beside
from policyguard.traces.told import told


def _named(context: click.Context, _: click.Parameter, store: Path | None) -> None:
    context.obj = store or context.obj or default_store()


_store = click.option(
    "--store",
    type=click.Path(path_type=Path),
    callback=_named,
    expose_value=False,
    help="The store's file.  [default: the user's own]",
)
"""Of the group and of each command: it may stand before the command or after it."""


@click.group()
@_store
def constraints() -> None:
    """Look at what failures have taught, and take it back."""


def _told(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are messages."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:  # who reads has read enough: click ends in silence
            raise
        except (StoreError, learned.ImportedError, OSError) as error:
            misuse(error)

    return run


def _open(path: Path, *, write: bool = False) -> SqliteStore:
    return SqliteStore(path, caps=None, read_only=not write)


_form = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")


@constraints.command("list")
@click.option("--revoked", is_flag=True, help="Also those that were taken back.")
@_form
@_store
@click.pass_obj
@_told
def list_command(store: Path, form: str, *, revoked: bool) -> None:
    """List the constraints."""
    found = list(learned.kept(_open(store), revoked=revoked))
    if form == "json":
        click.echo(json_document([_json(one) for one in found]))
    else:
        click.echo(render_list((one.constraint, one.state) for one in found))


@constraints.command("show")
@click.argument("id_", metavar="ID")
@_form
@_store
@click.pass_obj
@_told
def show_command(store: Path, id_: str, form: str) -> None:
    """Show one constraint: what it bans, for whom, and which calls taught it."""
    found = _found(_open(store), id_)
    if form == "json":
        click.echo(json_document(_json(found)))
    else:
        click.echo(render_one(found.constraint, found.state, found.revoked_by))


@constraints.command("explain")
@click.argument("id_", metavar="ID")
@_store
@click.pass_obj
@_told
def explain_command(store: Path, id_: str) -> None:
    """Tell which calls taught a constraint, as the journals beside the store have them."""
    kept = _open(store)
    found = _found(kept, id_)
    click.echo(render_one(found.constraint, found.state, found.revoked_by))
    for name in found.constraint.taught_by:
        session, _, call = name.rpartition("/")
        journal = journals_beside(kept.path) / file_name(session)
        click.echo(render_lesson(name, told(journal, call)))


@constraints.command("revoke")
@click.argument("id_", metavar="ID")
@click.option("--by", default=None, help="Who revokes.  [default: the user]")
@_store
@click.pass_obj
@_told
def revoke_command(store: Path, id_: str, by: str | None) -> None:
    """Take a constraint back, for every process; it is not learned again."""
    _found(_open(store), id_)  # nothing is made where no store is
    kept = _open(store, write=True)
    if kept.constraints.revoke(id_, by=by or getpass.getuser(), at=time.time_ns()) is None:
        _unknown(id_)
    click.echo(f"{for_terminal(id_)} is revoked")


@constraints.command("export")
@_store
@click.pass_obj
@_told
def export_command(store: Path) -> None:
    """Write the constraints that hold to standard output, one JSON object a line."""
    for line in learned.export(_open(store)):
        click.echo(for_json(line.decode()))


@constraints.command("import")
@click.argument("file", type=click.File("rb"))
@_store
@click.pass_obj
@_told
def import_command(store: Path, file: Any) -> None:
    """Take over constraints that were exported; what was revoked here stays revoked."""
    taken, refused = learned.take(_open(store, write=True), learned.imported(file))
    more = f"; {refused} stay revoked" if refused else ""
    click.echo(f"{taken} taken{more}")


def _found(store: SqliteStore, id_: str) -> learned.Kept:
    found = learned.one(store, id_)
    if found is None:
        _unknown(id_)
    return found


def _unknown(id_: str) -> NoReturn:
    misuse(f"none has the id `{for_terminal(id_, 40)}`")


def _json(held: learned.Kept) -> dict[str, Any]:
    plain = msgspec.to_builtins(held.constraint)
    return {**plain, "state": held.state, "revoked_by": held.revoked_by or None}
