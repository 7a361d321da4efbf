"""Build the cases of rules, and choose those that may concern a kind of call."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from policyguard.compiler.build.entry_paths import Path, case_id
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.build.messages import build_message
from policyguard.compiler.build.selectors.content_selectors import ContentSelectors
from policyguard.compiler.build.selectors.selector import (
    NameMatcher,
    compile_covering_selectors,
    compile_selector,
    compile_selectors,
)
from policyguard.evaluator.cases import CompiledCase
from policyguard.model.effect import Effect
from policyguard.model.policy import Case, Policy, Rule

_Selects = Callable[[str, str, str, tuple[str, ...]], bool]


class _NamedCase(msgspec.Struct, frozen=True, eq=False):
    """A case with its selectors on names: those that may match, and that certainly do."""

    selects: _Selects
    covers: _Selects
    agents: NameMatcher
    certain: CompiledCase
    possible: CompiledCase


class CaseSet:
    """The cases of one rule, `otherwise` last."""

    def __init__(self, cases: list[_NamedCase]) -> None:
        self._cases = cases

    @property
    def ids(self) -> list[str]:
        """The ids of all cases."""
        return [case.certain.id for case in self._cases]

    def choose(
        self, tool: str, server: str, agent: str, alias: str, classes: tuple[str, ...]
    ) -> tuple[CompiledCase, ...]:
        """Return the cases that such calls may match, up to one that they all do."""
        chosen: list[CompiledCase] = []
        for case in self._cases:
            if not (case.agents(agent) and case.selects(tool, server, alias, classes)):
                continue
            is_certain = case.covers(tool, server, alias, classes)
            chosen.append(case.certain if is_certain else case.possible)
            if chosen[-1].is_unconditional:
                break
        return tuple(chosen)


class CaseBuilder:
    """Builds the cases of a policy's rules."""

    def __init__(
        self,
        policy: Policy,
        expressions: Expressions,
        contents: ContentSelectors,
        redact: Callable[[str], str],
    ) -> None:
        self._policy = policy
        self._expressions = expressions
        self._contents = contents
        self._redact = redact

    def build(self, rule: Rule) -> CaseSet:
        """Return the cases of a rule."""
        cases = [self._build_case(rule, index) for index in range(len(rule.cases))]
        if rule.otherwise is not Effect.ALLOW:
            entry = Case(effect=rule.otherwise, on_error=rule.otherwise)
            path: Path = ("rules", rule.id, "otherwise")
            cases.append(self._name_case(entry, f"rules/{rule.id}/otherwise", path))
        return CaseSet(cases)

    def _build_case(self, rule: Rule, index: int) -> _NamedCase:
        path: Path = ("rules", rule.id, "cases", index)
        return self._name_case(rule.cases[index], case_id(rule.id, index), path)

    def _name_case(self, entry: Case, id_: str, path: Path) -> _NamedCase:
        case = CompiledCase(
            id=id_,
            selects=self._contents.compile(entry),
            covers=self._contents.compile_covering(entry),
            is_certain=True,
            when=self._expressions.get(*path, "when"),
            unless=self._expressions.get(*path, "unless"),
            effect=entry.effect,
            on_error=entry.on_error,
            message=build_message(entry.message, self._redact),
            instead=build_message(entry.instead, self._redact),
            doubts=self._contents.compile_doubts(entry, path),
        )
        return _NamedCase(
            compile_selectors(entry),
            compile_covering_selectors(entry),
            compile_selector(entry.agents),
            case,
            replace(case, is_certain=False),
        )
