"""The lint rules, one per file. A rule's docstring is its page (`policyguard explain CODE`)."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from policyguard.lint.rule import LintRule, rule_code


def _import_rules() -> list[Any]:
    modules = walk_packages(__path__, f"{__name__}.")
    return [import_module(module.name) for module in modules if not module.ispkg]


RULES: tuple[LintRule, ...] = tuple(sorted(_import_rules(), key=rule_code))

LOCAL = tuple(rule for rule in RULES if not rule.__name__.startswith(f"{__name__}.whole_policy."))
"""Rules about single entries and their neighbours."""
