"""What a policy says to a recorded call."""

from __future__ import annotations

from typing import NamedTuple

from policyguard.report.figures import Verdict


class Answer(NamedTuple):
    """The verdict, and what has most against the call. `refused`: the call would not have run."""

    effect: Verdict
    rule: str | None = None
    message: str | None = None
    refused: bool = False


ALLOWED = Answer("allow")
UNKNOWN = Answer("unknown")
