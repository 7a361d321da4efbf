"""The lint rules: one a file, whose docstring is its page (`policyguard explain CODE`)."""

from __future__ import annotations

from policyguard.lint.rule import LintRule
from policyguard.lint.rules import (
    absent_placeholder,
    bare_number,
    careless_override,
    command_as_text,
    constant_condition,
    double_escape,
    error_lets_through,
    escape_in_single_quotes,
    hair_trigger,
    idle_override,
    learns_nothing,
    matches_everything,
    never_matches,
    packs_at_odds,
    pattern_without_examples,
    refuses_nothing,
    rule_without_examples,
    schedule_does_not_shrink,
    shadowed_budget,
    shadowed_class,
    shadowed_signature,
    unbounded_polling,
    unguarded_argument,
    unreachable_limit,
    unreachable_step,
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
    constant_condition,
    double_escape,
    error_lets_through,
    escape_in_single_quotes,
    hair_trigger,
    idle_override,
    matches_everything,
    never_matches,
    packs_at_odds,
    pattern_without_examples,
    rule_without_examples,
    schedule_does_not_shrink,
    shadowed_budget,
    shadowed_class,
    shadowed_signature,
    unbounded_polling,
    unguarded_argument,
    unreachable_limit,
    unreachable_step,
)
"""Rules on what an entry is by itself, or beside those that it stands with."""

WHOLE_POLICY: tuple[LintRule, ...] = (
    learns_nothing,
    refuses_nothing,
    unused_class,
    unused_definition,
    unused_meta,
    unused_signatures,
)
"""Rules on what a policy does with all its parts; they are not asked of the parts themselves."""

RULES = (*LOCAL, *WHOLE_POLICY)
"""All rules, in the order in which they are asked."""
