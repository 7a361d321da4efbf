"""Answers that a person gives in a browser to a call that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from policyguard.adapters.service import handlers
from policyguard.adapters.service.protocol import ApproveRequest, DenyRequest
from policyguard.model.question import OpenQuestion

if TYPE_CHECKING:
    from policyguard.adapters.sessions import ServedSessions

NO_QUESTION = "it waits no longer: it was answered, has run, or has expired"
_SESSION_HOURS = 12
_HOUR = 3600.0


class Person(NamedTuple):
    """Who answers in a browser, with the labels that the host gives them."""

    by: str
    labels: tuple[str, ...]


def answer_question(
    sessions: ServedSessions, question: OpenQuestion, person: Person, asked: dict[str, Any]
) -> tuple[bool, str]:
    """Approve or deny as `asked["how"]` says. Return whether that was possible, and details.

    Raises `KeyError`, `TypeError` or `ValueError` if something is missing or wrong in `asked`.
    """
    how = asked["how"]
    owner: dict[str, Any] = {
        "session": question.session,
        "call": question.call,
        "agent": question.agent,
        "user": question.user,
        "project": question.project,
        "parent": question.parent or None,
        "by": person.by,
        "labels": [*person.labels],
    }
    if how == "deny":
        message = str(asked.get("message") or "")
        denied = handlers.deny(
            sessions, msgspec.convert({**owner, "message": message}, DenyRequest)
        )
        return denied.denied, denied.detail
    remember: dict[str, Any] = {}
    if how == "session":
        remember = {"remember": "call", "expires": _SESSION_HOURS * _HOUR}
    elif how == "grant":
        remember = {
            "remember": asked["remember"],
            "expires": float(asked["expires"]),
            "scope": asked["scope"],
        }
    elif how != "once":
        raise ValueError("`how` is once, session, grant or deny")
    approved = handlers.approve(sessions, msgspec.convert({**owner, **remember}, ApproveRequest))
    return approved.approved, approved.detail
