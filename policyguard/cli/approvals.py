"""`policyguard approvals`: list and answer the calls that wait for a person."""

from __future__ import annotations

import getpass
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from policyguard.adapters.client.connection import Unavailable, post
from policyguard.adapters.client.location import locate_socket
from policyguard.cli.options import (
    Seconds,
    file_option,
    named_store_option,
    path_option,
    policy_option,
)
from policyguard.cli.terminal.status import suggest_next, usage_error
from policyguard.model.question import OpenQuestion
from policyguard.report.escape import for_terminal, json_document
from policyguard.report.questions import render_question, render_questions
from policyguard.store.paths import default_store_path

_SECONDS = 10.0
_EXIT_NOT_ANSWERED = 1
_INTERVAL = 1.0
_HOUR = 3600.0
_KEYS = "  a: approve once   t: this tool, for an hour   d: deny   q: quit   other: leave it"


class Desk(NamedTuple):
    """The service whose questions are answered, and the token of admins, if it wants one."""

    socket: str
    token: str

    def send(self, path: str, **fields: Any) -> Any:
        """Return the answer of a request; exit if it failed."""
        body = json.dumps(fields).encode()
        try:
            status, _, answer = post(self.socket, path, body, timeout=_SECONDS, token=self.token)
        except Unavailable as error:
            usage_error(f"no service answers: {error}; start it with `policyguard serve`")
        found = json.loads(answer)
        if status != 200:
            usage_error(found["detail"])
        return found

    def questions(self) -> list[OpenQuestion]:
        """Return the calls that wait."""
        found = self.send("/v1/approvals")["approvals"]
        return msgspec.convert(found, list[OpenQuestion])

    def answer(self, path: str, one: OpenQuestion, by: str, **how: Any) -> str | None:
        """Answer a call; return what is missing, None if the answer holds."""
        owner = {"agent": one.agent, "user": one.user, "project": one.project}
        parent = {"parent": one.parent} if one.parent else {}
        answer = self.send(
            path, session=one.session, call=one.call, by=by, **owner, **parent, **how
        )
        holds = answer.get("approved") or answer.get("denied")
        return None if holds else str(answer.get("detail", ""))


@click.group()
def approvals() -> None:
    """List and answer the calls that wait for an approval, in a service that runs."""


def _desk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        file_option("--admin-token-file", help_="The token that the service wants from admins."),
        path_option("--socket", "socket_path", help_="The service's socket."),
        named_store_option(),
        policy_option,
    ):
        command = option(command)
    return command


def _find_desk(
    policies: tuple[str, ...], store: str | Path | None, socket: Path | None, token: Path | None
) -> Desk:
    chosen = socket or locate_socket(policies, store or default_store_path())
    try:
        return Desk(str(chosen), "" if token is None else token.read_text().strip())
    except OSError as error:
        usage_error(error)


@approvals.command("list", epilog="Example: policyguard approvals list --policy policyguard.yaml")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@_desk_options
def list_command(
    policies: tuple[str, ...],
    store: str | Path | None,
    socket_path: Path | None,
    admin_token_file: Path | None,
    output_format: str,
) -> None:
    """List the calls that wait, by session."""
    found = _find_desk(policies, store, socket_path, admin_token_file).questions()
    if output_format == "json":
        click.echo(json_document([msgspec.to_builtins(one) for one in found]))
        return
    click.echo(render_questions(found, time.time()))
    if found:
        suggest_next("`policyguard approvals approve CALL` lets a call run when it is made again")


@approvals.command("approve", epilog="Example: policyguard approvals approve toolu_01 --by ann")
@click.argument("call")
@click.option("--session", default=None, help="The call's session, where ids are not unique.")
@click.option("--by", default=None, help="Who approves.  [default: the current user]")
@click.option("--label", "labels", multiple=True, help="A label that the approver has.")
@click.option(
    "--remember",
    type=click.Choice(["call", "target", "tool", "prefix"]),
    help="Ask no more about calls like it: a grant.",
)
@click.option(
    "--expires", type=Seconds(), help="With --remember: how long, such as 8h, or in seconds."
)
@click.option(
    "--scope", type=click.Choice(["session", "agent", "user", "project"]), default="session"
)
@_desk_options
def approve_command(
    call: str,
    session: str | None,
    by: str | None,
    labels: tuple[str, ...],
    remember: str | None,
    expires: float | None,
    scope: str,
    policies: tuple[str, ...],
    store: str | Path | None,
    socket_path: Path | None,
    admin_token_file: Path | None,
) -> None:
    """Let a call run when it is made again.

    Exits with 0 if the call is approved, with 1 if it needs another person or a label.
    """
    desk = _find_desk(policies, store, socket_path, admin_token_file)
    one = _find_call(desk.questions(), call, session)
    how = {"labels": list(labels), "remember": remember, "expires": expires, "scope": scope}
    missing = desk.answer("/v1/approve", one, by or getpass.getuser(), **how)
    if missing is None:
        click.echo(f"{for_terminal(call)} is approved; it runs when the agent makes it again")
        return
    click.echo(f"{for_terminal(call)} is not approved: {for_terminal(missing)}")
    click.get_current_context().exit(_EXIT_NOT_ANSWERED)


@approvals.command(
    "deny", epilog='Example: policyguard approvals deny toolu_01 -m "use the test database"'
)
@click.argument("call")
@click.option("--message", "-m", default="", help="The word for the model.")
@click.option("--session", default=None, help="The call's session, where ids are not unique.")
@click.option("--by", default=None, help="Who denies it.  [default: the current user]")
@click.option("--label", "labels", multiple=True, help="A label that this person has.")
@_desk_options
def deny_command(
    call: str,
    message: str,
    session: str | None,
    by: str | None,
    labels: tuple[str, ...],
    policies: tuple[str, ...],
    store: str | Path | None,
    socket_path: Path | None,
    admin_token_file: Path | None,
) -> None:
    """Refuse a call without asking again in this turn.

    Exits with 0 if the call is denied, with 1 if it waits no longer or needs a label.
    """
    desk = _find_desk(policies, store, socket_path, admin_token_file)
    one = _find_call(desk.questions(), call, session)
    how = {"labels": list(labels), "message": message}
    missing = desk.answer("/v1/deny", one, by or getpass.getuser(), **how)
    if missing is None:
        click.echo(f"{for_terminal(call)} is denied; the agent reads why with its next result")
        return
    click.echo(f"{for_terminal(call)} is not denied: {for_terminal(missing)}")
    click.get_current_context().exit(_EXIT_NOT_ANSWERED)


@approvals.command("watch", epilog="Example: policyguard approvals watch --by ann")
@click.option("--by", default=None, help="Who approves.  [default: the current user]")
@_desk_options
def watch_command(
    by: str | None,
    policies: tuple[str, ...],
    store: str | Path | None,
    socket_path: Path | None,
    admin_token_file: Path | None,
) -> None:
    """Show calls as they begin to wait, and answer them with a key."""
    if not sys.stdin.isatty():
        usage_error("`watch` needs a terminal; use `policyguard approvals list --format json`")
    desk = _find_desk(policies, store, socket_path, admin_token_file)
    person = by or getpass.getuser()
    seen: set[tuple[str, str, float | None]] = set()
    click.echo("waiting for calls; q ends it")
    while True:
        for one in desk.questions():
            key = one.session, one.call, one.asked_at
            if key in seen:
                continue
            seen.add(key)
            click.echo(f"\n{render_question(one, time.time())}")
            click.echo(_KEYS)
            answer = click.getchar()
            if answer in ("q", "\x03", "\x04"):
                return
            if answer in ("a", "t", "d"):
                click.echo(f"  {_answer_key(desk, one, person, answer)}")
        time.sleep(_INTERVAL)


def _answer_key(desk: Desk, one: OpenQuestion, by: str, key: str) -> str:
    """Answer a call by a key; return what came of it."""
    if key == "d":
        message = click.prompt("  what to tell the model", default="", show_default=False)
        missing = desk.answer("/v1/deny", one, by, message=message)
        return "denied" if missing is None else for_terminal(missing)
    how = {"remember": "tool", "expires": _HOUR} if key == "t" else {}
    missing = desk.answer("/v1/approve", one, by, **how)
    return "approved" if missing is None else for_terminal(missing)


def _find_call(found: list[OpenQuestion], call: str, session: str | None) -> OpenQuestion:
    matching = [one for one in found if one.call == call and session in (None, one.session)]
    if not matching:
        usage_error(f"no call `{for_terminal(call)}` waits for an approval")
    if len(matching) > 1:
        sessions = ", ".join(for_terminal(one.session, 60) for one in matching)
        usage_error(f"call `{for_terminal(call)}` waits in several sessions: --session {sessions}")
    return matching[0]
