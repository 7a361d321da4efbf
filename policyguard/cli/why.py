"""`policyguard why`: why a call was decided as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import click

from policyguard.cli.options import named_store_option, policy_option
from policyguard.cli.terminal.status import policy_error, reports_errors, usage_error
from policyguard.compiler import compile_policy
from policyguard.journal import handover
from policyguard.journal.folder import file_name
from policyguard.journal.format import LineError, decode
from policyguard.model.diagnostic import PolicyError
from policyguard.model.event import Event
from policyguard.model.text import escape_surrogates
from policyguard.report.escape import for_terminal, json_document
from policyguard.report.why import render_why
from policyguard.simulate.why import explain_call
from policyguard.store.errors import StoreError
from policyguard.store.json_lines import read_lines
from policyguard.store.opening import open_named_store
from policyguard.store.paths import default_store_path, find_journal_folder
from policyguard.store.protocol import SharedAnchorStore, Store


@click.command(epilog="Example: policyguard why run-1 toolu_01 --policy policyguard.yaml")
@click.argument("session")
@click.argument("call")
@policy_option
@named_store_option()
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@reports_errors(StoreError, OSError)
def why(
    session: str, call: str, policies: tuple[str, ...], store: str | Path | None, output_format: str
) -> None:
    """Show why CALL of SESSION was decided as it was, from its journal.

    CALL is policyguard's id of the call, or the host's. Each entry of the policy that is about the
    call is asked again, with what it saw, and what would have changed its answer.
    """
    try:
        compiled = compile_policy(policies)
    except PolicyError as error:
        policy_error(error)
    opened = open_named_store(store or default_store_path(), caps=None, read_only=True)
    folder = find_journal_folder(opened) or Path()
    journal = folder / file_name(escape_surrogates(session))
    compiled.fingerprinter.rekey(opened.fingerprint_key)
    found = explain_call(
        compiled, _read_events(journal, _find_lines(journal, session, opened)), call
    )
    if found is None:
        usage_error(
            f"session `{for_terminal(session)}` has no call `{for_terminal(call)}`; "
            f"`policyguard journal show {journal}` lists them"
        )
    click.echo(json_document(found.to_json()) if output_format == "json" else render_why(found))


def _find_lines(journal: Path, session: str, store: Store) -> Iterator[bytes]:
    """Yield the lines of a session's journal: of this host, or those that a database has."""
    if journal.is_file():
        with journal.open("rb") as file:
            yield from read_lines(file)
        return
    shared = store.anchors if isinstance(store.anchors, SharedAnchorStore) else None
    lines = iter(handover.read_lines(shared.lines(session), sys.maxsize) if shared else ())
    first = next(lines, None)
    if first is None:
        usage_error(
            f"{journal}: session `{for_terminal(session)}` has no journal; "
            "`policyguard journal show` reads others"
        )
    yield from chain([first], lines)


def _read_events(path: Path, lines: Iterable[bytes]) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return  # being written
        try:
            yield decode(line[:-1])
        except LineError as error:
            usage_error(f"{path}: line {number}: {error}; see `policyguard journal verify`")
