"""What came of a call."""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.model.decision import Fault


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call, judged: did it fail, with which signature, and whose fault was it.

    `blame` is `agent`, `harness` or `unknown`, empty for a success. `result` and `failure` are
    fingerprints: of the result's text, and of the error with its accidents (numbers, paths,
    hashes, times) masked, so that "the same result" and "the same error" can be told.
    """

    ok: bool
    state: str
    text: str = ""
    error: str = ""
    signature: str = ""
    blame: str = ""
    exit_code: int | None = None
    status: int | None = None
    retry_after: float | None = None
    duration: float | None = None
    tokens: int | None = None
    cost: float | None = None
    score: float | None = None
    meta: dict[str, Any] = {}
    changed: bool = True
    result: str = ""
    failure: str = ""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `record`: the outcome, text to add to the result, what was learned.

    `errors` are expressions of the policy that failed on this result.
    """

    outcome: Outcome
    advice: str = ""
    learned: tuple[str, ...] = ()
    errors: tuple[Fault, ...] = ()
