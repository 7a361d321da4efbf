"""`policyguard grants`: list, show and revoke remembered approvals, and turn many into rules."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from policyguard.cli.options import OUTPUT, path_option, policy_option, store_option
from policyguard.cli.terminal.output import write
from policyguard.cli.terminal.status import (
    policy_error,
    reports_errors,
    status,
    suggest_next,
    usage_error,
)
from policyguard.compiler import compile_policy
from policyguard.model.diagnostic import PolicyError
from policyguard.report.escape import for_terminal, json_document
from policyguard.report.grant_rules import render_json, render_text
from policyguard.report.grants import render_grant, render_grants
from policyguard.simulate.replay import use_replay_key
from policyguard.simulate.suggest.grant_rules import suggest_rules
from policyguard.store import grant_records
from policyguard.store.errors import StoreError
from policyguard.store.opening import open_named_store
from policyguard.store.protocol import REVOKED, Store
from policyguard.traces import Skipped, TraceError, expand

_EXIT_NOTHING = 1


@click.group()
@store_option
def grants() -> None:
    """List, show and revoke approvals that are remembered."""


def _open_store(path: str | Path, *, write: bool = False) -> Store:
    return open_named_store(path, caps=None, read_only=not write)


_format_option = click.option(
    "--format", "output_format", type=click.Choice(["text", "json"]), default="text"
)


@grants.command("list", epilog="Example: policyguard grants list --store state.db")
@click.option("--all", "include_all", is_flag=True, help="List revoked and expired ones, too.")
@_format_option
@store_option
@click.pass_obj
@reports_errors(StoreError, OSError)
def list_command(store: str | Path, output_format: str, *, include_all: bool) -> None:
    """List the grants, the latest last."""
    found = sorted(
        grant_records.list_grants(_open_store(store), include_revoked=include_all),
        key=lambda stored: stored.grant.granted_at,
    )
    states = [(stored, _state(stored)) for stored in found]
    shown = [(stored, state) for stored, state in states if include_all or state != "expired"]
    if output_format == "json":
        click.echo(json_document([_to_json(stored, state) for stored, state in shown]))
        return
    click.echo(render_grants((stored.grant, state) for stored, state in shown))
    if shown:
        suggest_next("`policyguard grants revoke ID` lets the policy ask again")


@grants.command("show", epilog="Example: policyguard grants show g1f0c2a4b6d8e --store state.db")
@click.argument("id_", metavar="ID")
@_format_option
@store_option
@click.pass_obj
@reports_errors(StoreError, OSError)
def show_command(store: str | Path, id_: str, output_format: str) -> None:
    """Show which calls a grant covers, where, until when, and who approved it."""
    stored = _get_grant(_open_store(store), id_)
    if output_format == "json":
        click.echo(json_document(_to_json(stored, _state(stored))))
    else:
        click.echo(render_grant(stored.grant, _state(stored), stored.revoked_by))


@grants.command(
    "revoke", epilog="Example: policyguard grants revoke g1f0c2a4b6d8e --by ann --store state.db"
)
@click.argument("id_", metavar="ID")
@click.option("--by", default=None, help="The person who revokes it.  [default: the current user]")
@store_option
@click.pass_obj
@reports_errors(StoreError, OSError)
def revoke_command(store: str | Path, id_: str, by: str | None) -> None:
    """Revoke a grant, for every process: its calls are asked about again."""
    _get_grant(_open_store(store), id_)  # do not create a store
    opened = _open_store(store, write=True)
    if opened.grants.revoke(id_, by=by or getpass.getuser(), at=time.time_ns()) is None:
        _fail_unknown(id_)
    click.echo(f"{for_terminal(id_)} is revoked")


@grants.command("suggest", epilog="Example: policyguard grants suggest journal/ --policy p.yaml")
@click.argument("journals", nargs=-1, required=True)
@policy_option
@click.option(
    "--min-approvals",
    type=click.IntRange(2),
    default=5,
    show_default=True,
    help="How many different calls of a kind must have been approved.",
)
@_format_option
@path_option(*OUTPUT, dir_okay=False, metavar="FILE", help_="Write the proposed layer to a file.")
@reports_errors(TraceError, OSError)
def suggest_command(
    journals: tuple[str, ...],
    policies: tuple[str, ...],
    min_approvals: int,
    output_format: str,
    output: Path | None,
) -> None:
    """Propose rules that stop asking about what was always approved, and try them on journals.

    Reads the approvals in journals. A call that was not approved speaks against all calls of its
    kind. Prints which recorded calls the proposed layer would newly allow. Without arguments in the
    journals (`journal: {args: keep}`) only whole tools can be proposed.

    Exit codes: 0; 1 (nothing to propose); 2 (misuse, or a broken policy).
    """
    try:
        compiled = use_replay_key(compile_policy(policies, cache=False))
    except PolicyError as error:
        policy_error(error)
    files = tuple(expand(journals))
    skipped: list[Skipped] = []
    folder = output.parent if output is not None else Path()
    found = suggest_rules(compiled, policies, folder, files, min_approvals, skipped.append)
    if skipped:
        status(f"{len(skipped)} places could not be read, the first in {skipped[0].file}")
    click.echo(render_json(found) if output_format == "json" else render_text(found))
    if output is not None and found.layer:
        write(output, found.layer)
    if not found.proposals:
        click.get_current_context().exit(_EXIT_NOTHING)


def _state(stored: grant_records.StoredGrant) -> str:
    if stored.state != REVOKED and stored.grant.is_expired(time.time_ns()):
        return "expired"
    return stored.state


def _get_grant(store: Store, id_: str) -> grant_records.StoredGrant:
    stored = grant_records.find_grant(store, id_)
    if stored is None:
        _fail_unknown(id_)
    return stored


def _fail_unknown(id_: str) -> NoReturn:
    usage_error(f"no grant has the id `{for_terminal(id_, 40)}`; see `grants list`")


def _to_json(stored: grant_records.StoredGrant, state: str) -> dict[str, Any]:
    plain = msgspec.to_builtins(stored.grant)
    covers = stored.grant.pattern.text
    return {**plain, "covers": covers, "state": state, "revoked_by": stored.revoked_by or None}
