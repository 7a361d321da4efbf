"""Build the evaluator of a checked policy."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from policyguard.cel import Duration, Timestamp
from policyguard.cel.types.key_set import KeySet
from policyguard.compiler.build.entry_paths import learn_sections
from policyguard.compiler.build.expressions import Expressions, reads_field
from policyguard.compiler.build.grant_patterns import GrantPatterns
from policyguard.compiler.build.json_results import JsonResultParser
from policyguard.compiler.build.messages import collect_message_fields
from policyguard.compiler.build.named_patterns import NamedPatterns
from policyguard.compiler.build.outcome_matchers import (
    EnvelopeMatcher,
    ErrorNormalizer,
    ErrorUnwrapper,
    SignatureMatcher,
    build_result_fingerprint,
)
from policyguard.compiler.build.plans import PlanBuilder
from policyguard.compiler.build.selectors import call_readers
from policyguard.compiler.build.selectors.address_readers import (
    AddressReader,
    PathReader,
    UrlReader,
)
from policyguard.compiler.build.selectors.content_selectors import selector_reads
from policyguard.compiler.build.tag_types import build_tag_checker, build_tag_converter
from policyguard.engines.fingerprint import Fingerprinter
from policyguard.engines.likeness import CallLikeness, ResultLikeness, mask_call_words
from policyguard.evaluator.activation import ActivationContext
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.outcome_classifier import OutcomeClassifier
from policyguard.evaluator.pins import PinJudge
from policyguard.evaluator.plan import Plan
from policyguard.model.limits import limits_of
from policyguard.model.policy import Policy


def build_evaluator(
    policy: Policy, expressions: Expressions, fingerprinter: Fingerprinter
) -> Evaluator:
    """Build the evaluator of a policy without errors."""
    planner = PlanBuilder(policy, expressions, fingerprinter.fingerprint_text)
    reads = expressions.all_reads() | collect_message_fields(policy) | selector_reads(policy)
    plans = policy.bounds.plans
    candidates = lru_cache(plans)(planner.candidates)
    plan = lru_cache(plans)(planner.build_plan)

    @lru_cache(plans)
    def plan_for_tool(tool: str, server: str, agent: str, alias: str) -> Plan | None:
        fixed = candidates(tool, server, alias).fixed_classes
        return None if fixed is None else plan(tool, server, agent, fixed, alias)

    return Evaluator(
        name=policy.name,
        digest=policy.digest,
        observe_only=policy.mode == "observe",
        allow_on_internal_error=policy.on_internal_error == "allow",
        bounds=policy.bounds,
        candidates=candidates,
        plan=plan,
        plan_for_tool=plan_for_tool,
        identify=fingerprinter.fingerprint_call,
        find_likeness=_find_likeness(policy, fingerprinter),
        within_tolerance=fingerprinter.is_within_tolerance,
        activation_context=ActivationContext(
            lists={name: list(items) for name, items in policy.lists.items()},
            params={name: param.value for name, param in policy.params.items()},
            extract_targets=_targets_reader(policy, reads),
            derived_fields=_field_readers(policy, reads),
            first_line_tools=frozenset(policy.classify.shell.first_line_tools),
            address_fields=_address_readers(policy, expressions, reads),
            reads_previous=reads_field(reads, "call.previous"),
            to_timestamp=Timestamp.from_ns,
            to_duration=Duration.from_ns,
            to_keys=KeySet,
            convert_tags=build_tag_converter(policy),
            redact=planner.redact,
            parse_data=JsonResultParser(
                policy.bounds.result_chars, policy.bounds.result_depth
            ).parse,
        ),
        outcome_classifier=_outcome_classifier(policy, expressions, fingerprinter),
        budgets=planner.budgets,
        marks=planner.marks,
        approval_requirements=planner.approvals(),
        refusal_limits=planner.refusal_limit_ids(),
        exceptions=planner.exceptions,
        refuses_batches=policy.batch == "all_or_none",
        check_tags=build_tag_checker(policy),
        patterns=GrantPatterns(policy.classify, expressions.shell),
        result_rules=planner.result_rules(),
        result_meta=policy.outcomes.meta,
        pins=_pin_book(policy),
        disables_tools=any(
            getattr(getattr(level, kind), "refuse", "") == "tool"
            for level in policy.limits.values()
            for kind in level.__struct_fields__
        ),
        reads_data=reads_field(reads, "outcome.data"),
        reads_counts=any(".count" in source for source in expressions.sources()),
        reads_changed=reads_field(reads, "outcome.changed"),
    )


def build_fingerprinter(policy: Policy) -> Fingerprinter:
    """Return a policy's fingerprinter, with a random key."""
    settings = policy.classify.fingerprint
    return Fingerprinter(
        os.urandom(32),
        ignore=settings.ignore,
        fold=settings.fold,
        tolerance=settings.tolerance,
        depth=policy.bounds.argument_depth,
        size=policy.bounds.argument_bytes,
    )


def _pin_book(policy: Policy) -> PinJudge | None:
    if policy.pins is None:
        return None
    from policyguard.pins.book import PinBook  # most policies pin nothing

    patterns = NamedPatterns(policy)
    return PinBook(policy.pins, patterns.finder(policy.pins.finds))


def _find_likeness(
    policy: Policy, fingerprinter: Fingerprinter
) -> Callable[[str, str, dict[str, Any], str], str] | None:
    likeness = policy.classify.likeness
    if not (likeness.ignore or likeness.fold or likeness.commands):
        return None
    return CallLikeness(
        fingerprinter.fingerprint_call,
        ignore=likeness.ignore,
        fold=likeness.fold,
        commands=policy.classify.shell.arguments if likeness.commands else (),
    ).find


def _result_likeness(policy: Policy, fingerprinter: Fingerprinter) -> ResultLikeness | None:
    likeness = policy.classify.likeness.results
    ignores_order = likeness.order == "ignored"
    if not (likeness.ignore or likeness.mask or likeness.nothing or ignores_order):
        return None
    return ResultLikeness(
        fingerprinter.fingerprint_text,
        mask=likeness.mask,
        ignore=likeness.ignore,
        nothing=likeness.nothing,
        ignores_order=ignores_order,
    )


def _targets_reader(policy: Policy, reads: frozenset[str]) -> Any:
    by_target = any(
        repeat.same == "target"
        for level in policy.limits.values()
        for repeat in limits_of(level, "repeat")
    )
    banned = policy.learn is not None and any(
        learn.ban == "target" for learn, _ in learn_sections(policy)
    )
    if not (by_target or banned or policy.radius) and not reads_field(reads, "call.targets"):
        return None
    return call_readers.targets_reader(policy.classify.targets)


def _field_readers(policy: Policy, reads: frozenset[str]) -> dict[str, call_readers.ArgumentReader]:
    readers = {
        "command": call_readers.command_reader(
            policy.classify.shell.arguments,
            policy.classify.shell.words,
            policy.classify.shell.lists,
        ),
        "strings": call_readers.read_strings,
        "text": call_readers.read_text,
    }
    addresses = any(reads_field(reads, f"call.{name}") for name in ("paths", "urls"))
    return {
        name: derive
        for name, derive in readers.items()
        if reads_field(reads, f"call.{name}") or (name == "command" and addresses)
    }


def _address_readers(
    policy: Policy, expressions: Expressions, reads: frozenset[str]
) -> dict[str, AddressReader]:
    readers: dict[str, type[PathReader | UrlReader]] = {"paths": PathReader, "urls": UrlReader}
    return {
        name: reader(policy.classify, expressions.shell).find
        for name, reader in readers.items()
        if reads_field(reads, f"call.{name}")
    }


def _outcome_classifier(
    policy: Policy, expressions: Expressions, fingerprinter: Fingerprinter
) -> OutcomeClassifier:
    result_likeness = _result_likeness(policy, fingerprinter)
    rules = []
    for index, rule in enumerate(policy.blame):
        when = expressions.get("blame", index, "when")
        if when is not None:
            rules.append((f"blame/{rule.id}", when, rule.blame))
    return OutcomeClassifier(
        failed_when=expressions.get("outcomes", "failed_when"),
        match_envelope=EnvelopeMatcher(policy.outcomes.envelope).match
        if policy.outcomes.envelope
        else None,
        non_advancing_keys=policy.outcomes.meta.non_advancing,
        harness_keys=policy.outcomes.meta.harness,
        match_signature=SignatureMatcher(policy.signatures).match,
        has_success_signatures=any(one.on != "error" for one in policy.signatures),
        blame_rules=tuple(rules),
        result_fingerprint=build_result_fingerprint(
            fingerprinter, policy.classify.fingerprint.result_chars
        ),
        unwrap=ErrorUnwrapper(policy.outcomes.wrappers).unwrap
        if policy.outcomes.wrappers
        else None,
        find_like_result=result_likeness,
        mask_echo=result_likeness.mask_echo if result_likeness is not None else None,
        mask_call_words=mask_call_words,
        nothing_words=result_likeness.nothing_words if result_likeness is not None else (),
        nothing_chars=result_likeness.nothing_chars if result_likeness is not None else 0,
        error_fingerprint=ErrorNormalizer(fingerprinter).fingerprint,
        to_duration=Duration.from_ns,
        reads_outcome=reads_field(expressions.all_reads(), "outcome"),
        reads_data=reads_field(expressions.all_reads(), "outcome.data"),
    )
