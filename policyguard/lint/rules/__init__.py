"""The lint rules, one per file. A rule's docstring is its page (`policyguard explain CODE`)."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from policyguard.lint.rule import LintRule

_WHOLE_POLICY = {
    "learns_nothing",
    "refuses_nothing",
    "unused_class",
    "unused_definition",
    "unused_meta",
    "unused_signatures",
}
"""Rules about a whole policy. They do not run on files that are only part of one."""


def _import_rules(names: set[str]) -> tuple[Any, ...]:
    return tuple(import_module(f"{__name__}.{name}") for name in sorted(names))


LOCAL: tuple[LintRule, ...] = _import_rules(
    {module.name for module in iter_modules(__path__)} - _WHOLE_POLICY
)
"""Rules about single entries and their neighbours."""

RULES = (*LOCAL, *_import_rules(_WHOLE_POLICY))
