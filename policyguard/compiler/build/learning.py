"""Build the learning entries of a policy: one default, one for each signature with its own.

Also report `learn` sections that can never teach anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from policyguard.compiler.build.entry_paths import Path, learn_sections
from policyguard.compiler.build.expressions import Expressions, reads_field
from policyguard.compiler.build.selectors.call_readers import TARGETS_HINT
from policyguard.evaluator.activation import Expression
from policyguard.learned.learn_settings import Decay, LearnSettings
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Learn, Policy, Weaken

if TYPE_CHECKING:
    from policyguard.compiler.merge.layers import MergedPolicy


class LearnEntry(msgspec.Struct, frozen=True):
    """Learning from failures of one signature or, with an empty name, of all others.

    `parameters` are the arguments of a parameter ban, by signature. `exempt_classes` are exempt
    from target bans. If `reads_outcome`, `count_by` is undefined for a success.
    """

    name: str
    settings: LearnSettings
    blame: frozenset[str]
    scope: str
    scope_key: Expression | None
    ban: str
    key: Expression | None
    exempt_classes: frozenset[str]
    count_by: Expression | None
    reads_outcome: bool
    parameters: dict[str, tuple[str, ...]]

    @property
    def ignores_arguments(self) -> bool:
        """Whether its bans do not depend on a call's arguments."""
        looks = self.key or self.scope_key or self.count_by or self.parameters
        return self.ban != "target" and not looks


def build_learn_entries(policy: Policy, expressions: Expressions) -> dict[str, LearnEntry]:
    """Return the entries by signature; empty if the policy does not learn."""
    if policy.learn is None:
        return {}
    built = {"": _build_entry("", policy.learn, policy.learn, ("learn",), expressions)}
    for index, signature in enumerate(policy.signatures):
        if signature.learn is not None:
            path = ("signatures", index, "learn")
            built[signature.id] = _build_entry(
                signature.id, signature.learn, policy.learn, path, expressions
            )
    regions = [(learn.parameters or {}).items() for learn, _ in learn_sections(policy)]
    for signature_id, parameters in chain.from_iterable(regions):
        base = built.get(signature_id, built[""])
        built[signature_id] = replace(
            base,
            name=signature_id,
            settings=replace(base.settings, direction=parameters.direction),
            parameters={signature_id: parameters.of},
        )
    return built


def check_learning(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report bans that no call can match, blame that never teaches, probes that never come."""
    known = merged.is_complete and not merged.broken_names("classify")
    for learn, path in learn_sections(policy):
        if "harness" in (learn.blame or ()):
            yield merged.diagnostic(
                "reference/no-effect",
                "failures blamed on the harness never teach",
                (*path, "blame"),
                hint="use `agent` or `unknown`, or omit `blame`",
            )
        is_intact = not merged.broken_names(str(path[0]))
        if is_intact and merged.is_complete and learn.except_ and not _bans_targets(learn, policy):
            yield merged.diagnostic(
                "reference/no-effect",
                "`except` exempts classes from target bans, but nothing bans targets here",
                (*path, "except"),
                key=True,
                hint="write `ban: target`, or `except: []`",
            )
        weaken = learn.weaken if is_intact else None
        if weaken is not None and weaken.probation is not None and weaken.half_life is None:
            yield merged.diagnostic(
                "reference/no-effect",
                "`probation` has no effect without `half_life`, because the confidence stays at 1",
                (*path, "weaken", "probation"),
                key=True,
                hint="set the time in which confidence halves: `half_life: 7d`",
            )
        ban = learn.ban if learn.key is None and known else None
        if ban == "target" and not policy.classify.targets:
            yield merged.diagnostic(
                "reference/no-targets",
                "`ban: target` needs targets, but this policy defines none",
                (*path, "ban"),
                hint=TARGETS_HINT,
            )
        if ban == "class" and not policy.classify.classes and not merged.broken_names("classes"):
            yield merged.diagnostic(
                "reference/no-effect",
                "`ban: class` needs classes, but this policy defines none",
                (*path, "ban"),
                hint="define classes in `classify.classes`, or inherit them: `extends: [core]`",
            )


def _build_entry(
    name: str, own: Learn, base: Learn, path: Path, expressions: Expressions
) -> LearnEntry:
    """Build one entry from its own `learn`, or else from the policy's."""

    def pick(field: str) -> object:
        value = getattr(own, field)
        return getattr(base, field) if value is None else value

    def path_of(field: str) -> Path:
        return (*(path if getattr(own, field) is not None else ("learn",)), field)

    def expression(field: str) -> Expression | None:
        return expressions.get(*path_of(field))

    return LearnEntry(
        name=name,
        settings=LearnSettings(
            corroborate=int(str(pick("corroborate"))),
            resets_on_change=pick("reset_on") != "none",
            # A call that fails with a new error each time makes progress, so compare errors.
            same_error=_bans_calls(own, base),
            max_constraints=own.most or base.most,
            decay=_build_decay(own.weaken or base.weaken),
        ),
        blame=frozenset(pick("blame") or ()),  # type: ignore[call-overload]  # a tuple of names
        scope=str(pick("scope")),
        scope_key=expression("scope_key"),
        ban=str(pick("ban")),
        # An own `ban` replaces an inherited `key`.
        key=expression("key") if own.key is not None or own.ban is None else None,
        exempt_classes=frozenset(pick("except_") or ()),  # type: ignore[call-overload]  # a tuple of names
        count_by=expression("count_by"),
        reads_outcome=reads_field(expressions.reads(*path_of("count_by")), "outcome"),
        parameters={},
    )


def _bans_targets(learn: Learn, policy: Policy) -> bool:
    """Return whether a `learn` bans targets; the policy's covers its signatures, too."""
    sections = [own for own, _ in learn_sections(policy)] if learn is policy.learn else [learn]
    return any(_effective_ban(own, policy.learn or own) == "target" for own in sections)


def _effective_ban(own: Learn, base: Learn) -> str | None:
    """Return what is banned, or None if a `key` defines it."""
    by = own if own.ban or own.key else base
    return by.ban if by.key is None else None


def _bans_calls(own: Learn, base: Learn) -> bool:
    key = own.key or (base.key if own.ban is None else None)
    return (own.ban or base.ban) == "call" and not (key or own.count_by or base.count_by)


def _build_decay(weaken: Weaken | None) -> Decay:
    if weaken is None:
        return Decay(half_life=None, lifetime=None, probe_below=0.0, forget_on_success=True)
    return Decay(
        half_life=weaken.half_life,
        lifetime=weaken.lives,
        probe_below=weaken.probation or 0.0,
        forget_on_success=weaken.on_success != "keep",
    )
