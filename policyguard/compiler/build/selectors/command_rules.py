"""Which rules may select a command, found once for all rules of a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from policyguard.compiler.build.entry_paths import Path
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.build.shell_functions import ShellCommands
from policyguard.evaluator.activation import Activation, Prefilter
from policyguard.model.policy import Rule
from policyguard.shell.kept_answers import keep_answers

if TYPE_CHECKING:
    from policyguard.shell.pattern_set import CommandPatterns

_NONE: frozenset[str] = frozenset()


class CommandRules:
    """The rules that select commands by a list. Patterns are compiled by the first command."""

    def __init__(self, rules: Sequence[Rule], expressions: Expressions) -> None:
        self._items = {
            f"rules/{rule.id}": rule.commands.items
            for rule in rules
            if rule.commands and not rule.commands.outside
        }
        self._expressions = expressions
        self._shell: ShellCommands = expressions.shell
        self._find = keep_answers(self._select, self._shell.bounds)

    def __contains__(self, rule_id: str) -> bool:
        return rule_id in self._items

    def _select(self, command: str) -> frozenset[str]:
        """Return the ids of the rules that may select a command."""
        if not self._concerns(command):
            return _NONE
        return frozenset(
            rule for rule, patterns in self._patterns.items() if patterns.find(command) is not None
        )

    @cached_property
    def _concerns(self) -> Callable[[str], bool]:
        items = [item for items in self._items.values() for item in items]
        return self._shell.compile_patterns(items).concerns

    @cached_property
    def _patterns(self) -> dict[str, CommandPatterns]:
        return {rule: self._shell.compile_patterns(items) for rule, items in self._items.items()}

    def prefilter(self, rule_ids: Sequence[str]) -> Prefilter:
        """Combine the conditions of a plan's rules; of those of this class only for commands."""
        paths: list[Path] = [(*rule.split("/", 1), "when") for rule in rule_ids]
        others = [index for index, rule in enumerate(rule_ids) if rule not in self]
        ask_all = self._expressions.prefilter(paths)
        if len(others) == len(rule_ids):
            return ask_all
        ask_others = self._expressions.prefilter(paths[index] for index in others)
        find = self._find

        def prefilter(activation: Activation) -> tuple[int, ...]:
            if (command := activation.command) and (selecting := find(command)):
                return tuple(
                    [
                        index
                        for index in ask_all(activation)
                        if (rule := rule_ids[index]) in selecting or rule not in self
                    ]
                )
            if not others:
                return ()
            return tuple([others[index] for index in ask_others(activation)])

        return prefilter
