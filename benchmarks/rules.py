"""Rules that every rule engine supports; none matches the calls of `workload.call`.

Each tests one argument: equal to a text, containing it, beginning with it, or above a number. Only
the standard library is used, as in `workload`.
"""

from __future__ import annotations

import json
from typing import NamedTuple

_WORDS = ("password", "secret", "token", "credential", "salary", "passport", "invoice", "payroll")


class Rule(NamedTuple):
    """Blocks a call if `op` holds between an argument and a value."""

    id: str
    argument: str
    op: str
    value: str | int

    @property
    def cel(self) -> str:
        value = json.dumps(self.value)
        subject = f"call.args.{self.argument}"
        match self.op:
            case "equals":
                return f"{subject} == {value}"
            case "contains":
                return f"{subject}.contains({value})"
            case "prefix":
                return f"{subject}.startsWith({value})"
            case _:
                return f"{subject} > {value}"


def rules(count: int) -> list[Rule]:
    """Return `count` rules, a quarter of each kind."""
    result = []
    for number in range(count):
        word = f"{_WORDS[number % len(_WORDS)]} {number}"
        match number % 4:
            case 0:
                result.append(Rule(f"r{number}", "query", "contains", word))
            case 1:
                result.append(Rule(f"r{number}", "query", "equals", word))
            case 2:
                result.append(Rule(f"r{number}", "query", "prefix", word))
            case _:
                argument = "limit" if number % 8 == 3 else "page"
                result.append(Rule(f"r{number}", argument, "above", 10**9 + number))
    return result


def policy(count: int, *, core: bool = True, bounds: str = "") -> str:
    """Return a policy with `count` rules, over `core` or alone."""
    lines = ["policyguard: 1", f"name: with-{count}-rules"]
    if core:
        lines.append("extends: [core]")
    if bounds:
        lines.append(f"bounds: {{{bounds}}}")
    if count:
        lines.append("rules:")
        for rule in rules(count):
            lines += [f"  {rule.id}:", "    tools: [search]", f"    when: {json.dumps(rule.cel)}"]
    return "\n".join(lines) + "\n"
