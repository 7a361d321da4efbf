"""`policyguard journal verify`: check journals for tampering."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from policyguard.cli.console import usage_error
from policyguard.journal.chain import read_key
from policyguard.journal.errors import JournalError
from policyguard.journal.findings import UNPROVEN
from policyguard.journal.verify import VerifyResult, read_anchors, verify
from policyguard.report.escape import for_terminal, json_document
from policyguard.store.errors import StoreError
from policyguard.store.paths import default_store_path, journal_folder, resolve_store_path
from policyguard.store.sqlite.store import SqliteStore


@click.command("verify")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="The store with the anchors.  [default: the user's own, if it exists]",
)
@click.option(
    "--anchor",
    type=click.Path(path_type=Path),
    help="A file of exported anchors (policyguard journal anchors).",
)
@click.option(
    "--key", type=click.Path(path_type=Path), help="The file with the key of the journals."
)
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def verify_command(
    context: click.Context,
    paths: tuple[Path, ...],
    store: Path | None,
    anchor: Path | None,
    key: Path | None,
    output_format: str,
) -> None:
    """Verify that no journal line was altered, added or removed.

    PATHS are files and folders, by default the journals beside the store. In a folder, missing
    files are found too. Exit codes: 0 (nothing was altered); 1 (something was altered, or that is
    unknown); 2 (misuse, or no journal was found).
    """
    try:
        store_path = resolve_store_path(store or default_store_path())
        places = paths or (journal_folder(store_path),)
        has_store = store is not None or store_path.exists()  # the user's own need not exist
        anchors = SqliteStore(store_path, caps=None, read_only=True).anchors if has_store else None
        result = verify(
            places,
            anchors=anchors,
            exported=read_anchors(anchor) if anchor is not None else (),
            key=read_key(key) if key is not None else None,
        )
    except (JournalError, StoreError, OSError) as error:
        usage_error(error)
    if not result.files and not result.findings:  # nothing read is not the same as nothing altered
        named = ", ".join(map(str, places))
        usage_error(
            f"{named}: no journals found; pass a journal, a folder of journals, or the store"
        )
    if output_format == "json":
        click.echo(json_document(msgspec.to_builtins(result.findings)))
    else:
        for finding in result.findings:
            place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
            click.echo(f"{finding.severity}[{finding.code}]: {for_terminal(finding.message)}")
            click.echo(f"  --> {for_terminal(place)}")
            click.echo(f"   = help: {finding.help}")
    click.echo(_summary(result, has_anchors=anchors is not None or anchor is not None), err=True)
    context.exit(1 if result.has_failed else 0)


def _summary(result: VerifyResult, *, has_anchors: bool) -> str:
    files = f"{result.files} journal{'' if result.files == 1 else 's'}"
    lines = f"{result.lines} line{'' if result.lines == 1 else 's'}"
    errors = {one.code for one in result.findings if one.severity == "error"}
    conclusion = "nothing was altered"
    if errors:
        is_proven = not errors.issubset(UNPROVEN)
        conclusion = (
            "something was altered" if is_proven else "unknown whether something was altered"
        )
    if not has_anchors:
        conclusion += "; a cut tail or a missing file is only found with a store or --anchor"
    return f"{files}, {lines}: {conclusion}"
