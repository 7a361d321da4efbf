"""`policyguard verify`: has anybody been at the journals?"""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from policyguard.cli.console import usage_error
from policyguard.journal.anchor_export import read_anchors
from policyguard.journal.errors import JournalError
from policyguard.journal.findings import UNPROVEN
from policyguard.journal.hash_key import read_key
from policyguard.journal.verify import VerifyResult, verify
from policyguard.report.escape import for_terminal, json_document
from policyguard.store.errors import StoreError
from policyguard.store.paths import default_store_path, journal_folder, resolve_store_path
from policyguard.store.sqlite.store import SqliteStore


@click.command("verify")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="The store with the anchors.  [default: the user's own, where there is one]",
)
@click.option(
    "--anchor",
    type=click.Path(path_type=Path),
    help="Anchors that were exported before (policyguard journal anchors).",
)
@click.option(
    "--key", type=click.Path(path_type=Path), help="The file with the key that they are made with."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def verify_command(
    context: click.Context,
    paths: tuple[Path, ...],
    store: Path | None,
    anchor: Path | None,
    key: Path | None,
    form: str,
) -> None:
    """Verify journals: is every line as it was written, and is none missing?

    PATHS are files and folders; without any, the journals beside the store. Of a folder, missing
    files are found too. Exits with 0 (nothing was altered), 1 (something was, or could not
    be told), 2 (misuse, or no journal was found).
    """
    try:
        kept = resolve_store_path(store or default_store_path())
        places = paths or (journal_folder(kept),)
        known = store is not None or kept.exists()  # the user's own need not be there
        anchors = SqliteStore(kept, caps=None, read_only=True).anchors if known else None
        result = verify(
            places,
            anchors=anchors,
            exported=read_anchors(anchor) if anchor is not None else (),
            key=read_key(key) if key is not None else None,
        )
    except (JournalError, StoreError, OSError) as error:
        usage_error(error)
    if not result.files and not result.findings:  # what was not read is not unaltered
        named = ", ".join(map(str, places))
        usage_error(f"{named}: no journal is there; name a journal, a folder of them, or the store")
    if form == "json":
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
    said = "nothing was altered"
    if errors:
        told = not errors.issubset(UNPROVEN)
        said = "something was altered" if told else "whether something was altered is not known"
    if not has_anchors:
        said += "; without a store or --anchor, a cut tail or a missing file is not found"
    return f"{files}, {lines}: {said}"
