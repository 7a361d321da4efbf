"""The lint rules, one per file. A rule's docstring is its page (`policyguard explain CODE`)."""

from __future__ import annotations

from policyguard.lint.rule import LintRule
from policyguard.lint.rules import (
    absent_placeholder,
    bare_number,
    careless_override,
    command_as_text,
    conflicting_packs,
    constant_condition,
    double_escape,
    escape_in_single_quotes,
    fail_open,
    hair_trigger,
    learns_nothing,
    matches_everything,
    never_matches,
    pattern_without_examples,
    redundant_override,
    refuses_nothing,
    rule_without_examples,
    schedule_does_not_shrink,
    shadowed_budget,
    shadowed_class,
    shadowed_signature,
    unbounded_polling,
    unguarded_argument,
    unreachable_limit,
    unreachable_threshold,
    unused_class,
    unused_definition,
    unused_meta,
    unused_signatures,
)

LOCAL: tuple[LintRule, ...] = (
    absent_placeholder,
    bare_number,
    careless_override,
    command_as_text,
    conflicting_packs,
    constant_condition,
    double_escape,
    escape_in_single_quotes,
    fail_open,
    hair_trigger,
    matches_everything,
    never_matches,
    pattern_without_examples,
    redundant_override,
    rule_without_examples,
    schedule_does_not_shrink,
    shadowed_budget,
    shadowed_class,
    shadowed_signature,
    unbounded_polling,
    unguarded_argument,
    unreachable_limit,
    unreachable_threshold,
)
"""Rules about single entries and their neighbours."""

WHOLE_POLICY: tuple[LintRule, ...] = (
    learns_nothing,
    refuses_nothing,
    unused_class,
    unused_definition,
    unused_meta,
    unused_signatures,
)
"""Rules about a whole policy. They do not run on files that are only part of one."""

RULES = (*LOCAL, *WHOLE_POLICY)
