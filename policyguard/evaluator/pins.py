"""What the evaluator asks of the pinned tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from policyguard.model.decision import Violation
from policyguard.model.pins import PinFinding, PinKind


class PinJudge(Protocol):
    """Judges tools by how they were pinned. `observe`: it never refuses."""

    observe: bool

    def judge(self, server: str, tool: Mapping[str, Any]) -> PinFinding | None:
        """Judge a tool as its server lists it; None if it is as it was pinned."""

    def find_removed(self, server: str, names: Iterable[str]) -> tuple[PinFinding, ...]:
        """Return the pinned tools of a server that are not among all those it lists."""

    def describe(self, server: str, tool: str, definition: Mapping[str, Any]) -> dict[PinKind, str]:
        """Return in which ways a called tool is not as it was pinned, each in words."""

    def violations(self, kinds: Mapping[PinKind, str]) -> list[Violation]:
        """Return what the policy says of a tool that differs in these ways, strongest first."""
