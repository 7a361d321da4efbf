"""From a checked policy to an Evaluator."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from policyguard.cel import Duration, Timestamp
from policyguard.compiler import derived
from policyguard.compiler.expressions import Expressions, reads_any
from policyguard.compiler.placeholders import told_in_messages
from policyguard.compiler.plans import Planner
from policyguard.compiler.sameness import Envelope, Errors, Signatures, results
from policyguard.compiler.tags import checker, seen
from policyguard.engines.fingerprint import Fingerprinter
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.observe import Observer
from policyguard.evaluator.view import Ground
from policyguard.model.limits import RepeatLimit
from policyguard.model.policy import Policy


def build(policy: Policy, expressions: Expressions, fingerprinter: Fingerprinter) -> Evaluator:
    """Compile a policy without errors."""
    planner = Planner(policy, expressions, fingerprinter.text)
    reads = expressions.all_reads() | told_in_messages(policy)
    plans = policy.bounds.plans
    plan = lru_cache(plans)(planner.plan)
    return Evaluator(
        name=policy.name,
        digest=policy.digest,
        observe_only=policy.mode == "observe",
        allow_on_internal_error=policy.on_internal_error == "allow",
        bounds=policy.bounds,
        candidates=lru_cache(plans)(planner.candidates),
        plan=plan,
        known=lru_cache(plans)(planner.known(plan)),
        identify=fingerprinter.call,
        close=fingerprinter.close,
        ground=Ground(
            lists={name: list(items) for name, items in policy.lists.items()},
            params={name: param.value for name, param in policy.params.items()},
            targets=_targets(policy, reads),
            derive=_derived(policy, reads),
            reads_previous=reads_any(reads, "call.previous"),
            instant=Timestamp.from_ns,
            span=Duration.from_ns,
            tags=seen(policy),
            redact=planner.redact,
        ),
        observer=_observer(policy, expressions, fingerprinter),
        budgets=planner.budgets,
        approvals=planner.approvals(),
        refusals=planner.refusals(),
        check_tags=checker(policy),
        reads_counts=_counts(expressions),
        reads_changed=reads_any(reads, "outcome.changed"),
    )


def fingerprinter_for(policy: Policy) -> Fingerprinter:
    """What tells calls apart under a policy, with a random key."""
    settings = policy.classify.fingerprint
    return Fingerprinter(
        os.urandom(32),
        ignore=settings.ignore,
        fold=settings.fold,
        tolerance=settings.tolerance,
        depth=policy.bounds.argument_depth,
        size=policy.bounds.argument_bytes,
    )


def _targets(policy: Policy, reads: frozenset[str]) -> Any:
    by_target = any(
        isinstance(level.repeat, RepeatLimit) and level.repeat.same == "target"
        for level in policy.limits.values()
    )
    banned = policy.learn is not None and any(
        learn is not None and learn.ban == "target"
        for learn in (policy.learn, *(signature.learn for signature in policy.signatures))
    )
    if not (by_target or banned or policy.radius) and not reads_any(reads, "call.targets"):
        return None
    return derived.targets(policy.classify.targets)


def _derived(policy: Policy, reads: frozenset[str]) -> dict[str, derived.Derive]:
    known = {
        "command": derived.command(policy.classify.shell.arguments),
        "strings": derived.strings,
    }
    return {name: derive for name, derive in known.items() if reads_any(reads, f"call.{name}")}


def _observer(policy: Policy, expressions: Expressions, fingerprinter: Fingerprinter) -> Observer:
    rules = []
    for number, rule in enumerate(policy.blame):
        when = expressions.get("blame", number, "when")
        if when is not None:
            rules.append((f"blame/{rule.id}", when, rule.blame))
    return Observer(
        failed_when=expressions.get("outcomes", "failed_when"),
        envelope=Envelope(policy.outcomes.envelope).state if policy.outcomes.envelope else None,
        non_advancing=policy.outcomes.meta.non_advancing,
        harness=policy.outcomes.meta.harness,
        signature=Signatures(policy.signatures).first,
        success_signed=any(one.on != "error" for one in policy.signatures),
        blame_rules=tuple(rules),
        same_result=results(fingerprinter, policy.classify.fingerprint.result_chars),
        same_error=Errors(fingerprinter).same,
        span=Duration.from_ns,
        told=reads_any(expressions.all_reads(), "outcome"),
    )


def _counts(expressions: Expressions) -> bool:
    return any(".count" in source for source in expressions.sources())
