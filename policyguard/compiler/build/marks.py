"""Build marks: what they are, and the calls that set and clear them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from policyguard.compiler.build.entry_paths import Path, mark_events
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.build.selectors.content_selectors import ContentSelectors
from policyguard.compiler.build.selectors.selector import (
    NameMatcher,
    compile_selector,
    compile_selectors,
)
from policyguard.evaluator.marks.compiled_mark import CompiledMark, CompiledMarkEvent, MarkEvents
from policyguard.model.marks import Mark, MarkEvent
from policyguard.model.policy import Policy


class _Candidate(msgspec.Struct, frozen=True, eq=False):
    """An event, with the calls that may be one by their tool, classes and agent."""

    kind: Literal["set", "clear"]
    selects_call: Callable[[str, str, str, tuple[str, ...]], bool]
    selects_agent: NameMatcher
    event: CompiledMarkEvent


class MarkBuilder:
    """Builds the marks of a policy; `digest` is the fingerprint of a key."""

    def __init__(
        self,
        policy: Policy,
        expressions: Expressions,
        contents: ContentSelectors,
        digest: Callable[[str], str],
    ) -> None:
        self._expressions = expressions
        self._contents = contents
        self.marks = {mark.id: self._build(mark, digest) for mark in policy.marks}
        self._candidates = [
            _Candidate(
                kind,
                compile_selectors(event),
                compile_selector(event.agents),
                self._build_event(self.marks[mark.id], kind, event, path),
            )
            for mark, kind, event, path in mark_events(policy)
        ]

    def select(
        self, tool: str, server: str, agent: str, classes: tuple[str, ...], alias: str
    ) -> MarkEvents | None:
        """Return the events that calls of a kind may be; None if they can be none."""
        found: dict[str, list[CompiledMarkEvent]] = {"set": [], "clear": []}
        for one in self._candidates:
            if one.selects_call(tool, server, alias, classes) and one.selects_agent(agent):
                found[one.kind].append(one.event)
        if not (found["set"] or found["clear"]):
            return None
        return MarkEvents(tuple(found["set"]), tuple(found["clear"]))

    def _build(self, mark: Mark, digest: Callable[[str], str]) -> CompiledMark:
        return CompiledMark(
            name=mark.id,
            scope=mark.per,
            within=mark.within,
            is_keyed=mark.is_keyed,
            key=self._expressions.get("marks", mark.id, "key"),
            keep=mark.keep,
            sets_on_error=mark.on_error == "set",
            digest=digest,
        )

    def _build_event(
        self, mark: CompiledMark, kind: str, event: MarkEvent, path: Path
    ) -> CompiledMarkEvent:
        # A command that cannot be read must not stand for the tests that a rule waits for, nor for
        # what clears a mark that closes a way.
        certain = (kind == "clear") is mark.sets_on_error
        return CompiledMarkEvent(
            mark=mark,
            selects=self._contents.compile(event, certain=certain),
            when=self._expressions.get(*path, "when"),
            unless=self._expressions.get(*path, "unless"),
            key=self._expressions.get(*path, "key"),
        )
