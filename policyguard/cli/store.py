"""`policyguard store`: the database behind guards on several hosts."""

from __future__ import annotations

from pathlib import Path

import click

from policyguard.cli.options import store_option
from policyguard.cli.terminal import reports_errors
from policyguard.report.escape import for_terminal, json_document
from policyguard.store.errors import StoreError
from policyguard.store.opening import open_named_store
from policyguard.store.paths import hide_address, is_database_address


@click.group()
@store_option
def store() -> None:
    """Show and prepare a store."""


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
        "evidence": len(opened.evidence.list()),
        "anchors": sum(1 for _ in opened.anchors.all()),
        "budgets": len(opened.quotas.keys()),
    }
    opened.close()
    kind = "PostgreSQL" if is_database_address(store) else "SQLite"
    if output_format == "json":
        click.echo(json_document({"kind": kind, "store": str(hide_address(store)), **counts}))
        return
    click.echo(f"{kind}  {for_terminal(str(hide_address(store)))}")
    for name, count in counts.items():
        click.echo(f"  {name:12} {count:,}")


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
