"""`policyguard store`: the database behind guards on several hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from policyguard.cli.options import StoreName, store_option
from policyguard.cli.terminal.status import reports_errors, usage_error
from policyguard.guard.budgets.quota_names import guess_spec, parse_quota_name
from policyguard.journal.copying import CopiedJournals, copy_journals, read_journals
from policyguard.journal.errors import JournalError
from policyguard.model.amounts import format_duration
from policyguard.report.escape import for_terminal, json_document
from policyguard.store.collecting import collect, find_garbage
from policyguard.store.copying import JournalPiece, copy_store
from policyguard.store.errors import StoreError
from policyguard.store.opening import open_named_store
from policyguard.store.paths import hide_address, is_database_address
from policyguard.store.quota.protocol import QuotaKey, QuotaSpec


@click.group()
@store_option
def store() -> None:
    """Show, prepare, copy and tidy a store."""


@store.command("status", epilog="Example: policyguard store status --store postgresql://db/guards")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@store_option
@click.pass_obj
@reports_errors(StoreError, OSError)
def status_command(store: str | Path, output_format: str) -> None:
    """Show what a store holds."""
    opened = open_named_store(store, caps=None, read_only=True)
    counts = {
        "constraints": len(opened.constraints.list()),
        "grants": len(opened.grants.list()),
        "marks": len(opened.marks.list()),
        "evidence": len(opened.evidence.list()),
        "anchors": sum(1 for _ in opened.anchors.all()),
        "budgets": len(opened.quotas.keys()),
    }
    describe = getattr(opened, "describe", None)  # of a database, which an address may not name
    place: dict[str, str | int] = describe() if describe is not None else {}
    opened.close()
    kind = "PostgreSQL" if is_database_address(store) else "SQLite"
    if output_format == "json":
        click.echo(
            json_document({"kind": kind, "store": str(hide_address(store)), **place, **counts})
        )
        return
    click.echo(f"{kind}  {for_terminal(str(hide_address(store)))}")
    for name, value in place.items():
        click.echo(f"  {name:12} {for_terminal(str(value))}")
    for name, count in counts.items():
        click.echo(f"  {name:12} {count:,}")


@store.command("copy", epilog="Example: policyguard store copy state.db postgresql://db/guards")
@click.argument("source", type=StoreName())
@click.argument("target", type=StoreName())
@reports_errors(StoreError, JournalError, OSError)
def copy_command(source: str | Path, target: str | Path) -> None:
    """Copy the store SOURCE into TARGET, which must be new: a file or a database.

    What is learned, granted and marked, the budgets, the anchors of journals and the key of
    fingerprints are copied, read back and compared, and so are the journals of this host. End the
    guards that use SOURCE first; then give them TARGET. SOURCE stays as it is.
    """
    if not is_database_address(source) and not Path(source).is_file():
        usage_error(f"no store at {source}")
    given = open_named_store(source, caps=None)
    taken = open_named_store(target, caps=None)
    journals: list[CopiedJournals] = []

    def bring_journals() -> Iterator[JournalPiece]:
        journals.append(copy_journals(given, taken))
        return read_journals(given, taken)

    content = copy_store(given, taken, _spec_of, time.time_ns(), bring_journals)
    given.close()
    taken.close()
    names = [for_terminal(str(hide_address(store))) for store in (source, target)]
    click.echo(f"{names[0]} is copied to {names[1]}, and compared")
    for name in ("constraints", "grants", "marks", "evidence", "anchors", "usages"):
        shown = "budgets" if name == "usages" else name
        click.echo(f"  {shown:12} {len(getattr(content, name)):,}")
    (copied,) = journals
    if copied.folder is not None:
        click.echo(f"  {'journals':12} {copied.copied + copied.written:,} in {copied.folder}")
    if copied.missing:
        what = "session has" if copied.missing == 1 else "sessions have"
        others = is_database_address(source)
        remedy = ": copy those of other hosts" if others else ", and cannot go on"
        click.echo(f"  {copied.missing} {what} no journal here{remedy}")


@store.command("gc", epilog="Example: policyguard store gc --dry-run --store state.db")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@store_option
@click.pass_obj
@reports_errors(StoreError, OSError)
def gc_command(store: str | Path, *, dry_run: bool) -> None:
    """Delete what nothing counts any more.

    These are grants that have expired, budgets whose windows are over, and what guards that died
    have held of budgets: as far as they used it, it counts as used. What was revoked stays, so that
    it is not learned or granted again. For journals there is `policyguard journal prune`.
    """
    now = time.time_ns()
    opened = open_named_store(store, caps=None, read_only=True)  # which makes no store
    garbage = find_garbage(opened, now)
    opened.close()
    if not dry_run:
        opened = open_named_store(store, caps=None)
        garbage = collect(opened, _spec_of, now)
        opened.close()
    click.echo("would go:" if dry_run else "gone:")
    expired = _describe_first([grant.expires_at for grant in garbage.grants], now)
    click.echo(f"  {'grants':12} {len(garbage.grants):,} expired{expired}")
    over = _describe_first([one.until for one in garbage.budgets if one.until is not None], now)
    click.echo(f"  {'budgets':12} {len(garbage.budgets):,} whose windows are over{over}")
    click.echo(f"  {'leases':12} {garbage.leases:,} of guards that died")


def _describe_first(ends: Sequence[int], now: int) -> str:
    """Return how long before `now` the first of some times (ns) was; nothing without one."""
    if not ends:
        return ""
    seconds = (now - min(ends)) // 10**9
    return f", the first {format_duration(seconds * 10**9)} ago"


def _spec_of(key: QuotaKey) -> QuotaSpec:
    return guess_spec(parse_quota_name(key.budget))


@store.command(
    "migrate", epilog="Example: policyguard store migrate --store postgresql://owner@db/guards"
)
@store_option
@click.pass_obj
@reports_errors(StoreError, OSError)
def migrate_command(store: str | Path) -> None:
    """Make the tables of a store, or bring them up to date.

    A guard does this by itself where it may; run it as the owner of the database where guards may
    not change tables.
    """
    opened = open_named_store(store, caps=None)
    opened.constraints.version()
    opened.close()
    click.echo(f"{for_terminal(str(hide_address(store)))} is up to date")
