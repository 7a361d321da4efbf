"""Calls that wait for a person's approval."""

from __future__ import annotations

from typing import Any

import msgspec


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose effect was *ask*, and which may still be approved.

    `call` is its id. `args` are redacted as messages are; None: its journal kept none. `entries`
    asked; `message` is what the model reads, where that is still known. `asked_at` is seconds
    since 1970 (UTC), and so is `expires_at`, after which an approval counts no more; None: never.
    Of `approvers` people some have approved: `approved_by`. An approver needs one of the `labels`,
    if there are any.
    """

    session: str
    call: str
    tool: str
    args: dict[str, Any] | None
    entries: tuple[str, ...]
    asked_at: float | None
    expires_at: float | None
    approvers: int
    approved_by: tuple[str, ...]
    labels: tuple[str, ...]
    parent: str = ""
    agent: str = ""
    user: str = ""
    project: str = ""
    message: str = ""
