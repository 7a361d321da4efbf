"""Check references between the parts of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from policyguard.compiler.build.entry_paths import learn_sections, level_path, selective_entries
from policyguard.compiler.build.learning import check_learning
from policyguard.compiler.build.limits import LIMIT_KINDS
from policyguard.compiler.build.radius import check_radius
from policyguard.compiler.build.selectors.selector import (
    compile_glob,
    tool_glob_specificity,
    tool_globs_overlap,
)
from policyguard.compiler.check.ineffective_keys import check_unreachable_limits
from policyguard.compiler.check.tags import check_examples, check_tags
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic, Span, did_you_mean, quote_text
from policyguard.model.entry import SelectiveEntry, Selector
from policyguard.model.limits import FailuresLimit, LimitLevel
from policyguard.model.policy import Policy, Value

_LIMIT_KINDS = (*LIMIT_KINDS, "refusals", "timeout")


def check_references(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Check every reference of a merged policy to its own parts."""
    yield from _check_classes(policy, merged)
    yield from _check_signatures(policy, merged)
    yield from _check_ambiguous_globs(policy, merged)
    yield from check_unreachable_limits(policy, merged)
    yield from check_learning(policy, merged)
    yield from check_radius(policy, merged)
    yield from check_tags(policy, merged)
    yield from _check_redact_patterns(policy, merged)
    yield from _check_lists(policy, merged)
    yield from check_examples(policy, merged)


def _check_classes(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    if not merged.is_complete:
        return
    known = {entry.class_ for entry in policy.classify.classes} | merged.broken_names("classes")
    for path, name in _class_references(policy):
        if not any(map(compile_glob(name), known)):
            message = f"no call has the class {quote_text(name)}"
            hint = did_you_mean(name, known)
            if hint is None and not known:
                hint = "define classes in `classify.classes`, or inherit them: `extends: [core]`"
            key = path[:2] == ("limits", "classes")
            yield merged.diagnostic("reference/unknown-class", message, path, key=key, hint=hint)


def _class_references(policy: Policy) -> Iterator[tuple[Path, str]]:
    """Yield every reference to a class, with its path."""
    for path, entry in selective_entries(policy):
        yield from _selector_items(entry, (*path, "classes"))
    for level in policy.limits:
        group, _, name = level.partition(":")
        if group == "classes":
            yield ("limits", "classes", name), name
    for learn, path in learn_sections(policy):
        for index, name in enumerate(learn.except_ or ()):
            yield (*path, "except", index), name
    changing = policy.classify.state_changing
    if not isinstance(changing, str):
        for index, name in enumerate(changing or ()):
            yield ("classify", "state_changing", index), name


def _selector_items(entry: SelectiveEntry, path: Path) -> Iterator[tuple[Path, str]]:
    selector: Selector | None = entry.classes
    if selector is not None:
        inner = (*path, "outside") if selector.outside else path
        yield from (((*inner, index), name) for index, name in enumerate(selector.items))


def _check_signatures(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    known = {signature.id for signature in policy.signatures} | merged.broken_names("signatures")
    for span, signature in _signature_references(policy, merged):
        if signature not in known and merged.is_complete:
            message = f"no signature has the id {quote_text(signature)}"
            hint = did_you_mean(signature, known)
            yield merged.diagnostic("reference/unknown-signature", message, span, hint=hint)


def _signature_references(policy: Policy, merged: MergedPolicy) -> Iterator[tuple[Span, str]]:
    """Yield every reference to a signature, with its span."""
    for level, limits in policy.limits.items():
        failures = limits.failures
        if isinstance(failures, FailuresLimit) and failures.signature is not None:
            yield merged.span_of((*level_path(level), "failures", "signature")), failures.signature
    for learn, path in learn_sections(policy):
        for name in learn.parameters or ():
            yield merged.span_of((*path, "parameters", name), key=True), name


def _check_redact_patterns(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report unknown patterns in `journal.redact`."""
    known = set(policy.patterns) | merged.broken_names("patterns")
    for index, name in enumerate(policy.journal.redact):
        if merged.is_complete and not any(map(compile_glob(name), known)):
            message = f"no pattern named {quote_text(name)}"
            hint = did_you_mean(name, known)
            yield merged.diagnostic(
                "reference/unknown-pattern", message, ("journal", "redact", index), hint=hint
            )


def _check_ambiguous_globs(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report overlapping globs of `limits.tools` that are equally specific."""
    levels = [
        (level.partition(":")[2], limits)
        for level, limits in policy.limits.items()
        if level.startswith("tools:")
    ]
    for (one, first), (other, second) in combinations(levels, 2):
        shared = [
            kind for kind in _LIMIT_KINDS if _has_kind(first, kind) and _has_kind(second, kind)
        ]
        if (
            shared
            and tool_glob_specificity(one) == tool_glob_specificity(other)
            and tool_globs_overlap(one, other)
        ):
            message = f"`{one}` and `{other}` can match the same tool, and neither is more specific"
            kinds = ", ".join(f"`{kind}`" for kind in shared)
            hint = f"both set {kinds}; make one longer before its first `*`"
            yield merged.diagnostic(
                "reference/tie", message, ("limits", "tools", other), key=True, hint=hint
            )


def _has_kind(level: LimitLevel, kind: str) -> bool:
    return getattr(level, kind) is not None


def _check_lists(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report lists that mix text and other values, half of which can never be equal to anything."""
    for name, items in policy.lists.items():
        other_index = _first_non_text(items)
        if other_index is not None:
            message = f"the list `{name}` mixes text and other values"
            hint = f'if it is text, quote it: `"{items[other_index]}"`'
            yield merged.diagnostic(
                "reference/mixed-list", message, ("lists", name, other_index), hint=hint
            )


def _first_non_text(items: Iterable[Value]) -> int | None:
    """Return the index of the first item that is not text, in a list that has text too."""
    texts = [isinstance(item, str) for item in items]
    return texts.index(False) if any(texts) and not all(texts) else None
