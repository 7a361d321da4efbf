"""From the policy's `learn` to entries that a Learner works with: one for all, one a signature.

And what makes a `learn` that can teach nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from policyguard.compiler.build.entry_paths import learn_sections
from policyguard.compiler.build.expressions import Expressions, Path, reads_field
from policyguard.evaluator.activation import Expression
from policyguard.learned.learn_settings import Decay, LearnSettings
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Learn, Policy, Weaken

if TYPE_CHECKING:
    from policyguard.compiler.merge.layers import MergedPolicy


class LearnEntry(msgspec.Struct, frozen=True):
    """What failures of one signature (or, with an empty name, of all others) teach.

    `parameters` names the arguments of a parameter ban, by signature. `spared` are classes that a
    ban of a target leaves alone. Where `count_by` is `by_outcome`, it has no meaning for a success.
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
        """Whether it is about calls, tools or classes as they are, and looks at no arguments."""
        looks = self.key or self.scope_key or self.count_by or self.parameters
        return self.ban != "target" and not looks


def build_learn_entries(policy: Policy, expressions: Expressions) -> dict[str, LearnEntry]:
    """The entries by signature; empty where the policy does not learn."""
    if policy.learn is None:
        return {}
    made = {"": _build_entry("", policy.learn, policy.learn, ("learn",), ("learn",), expressions)}
    for number, signature in enumerate(policy.signatures):
        if signature.learn is not None:
            made[signature.id] = _build_entry(
                signature.id,
                signature.learn,
                policy.learn,
                ("signatures", number, "learn"),
                ("learn",),
                expressions,
            )
    regions = [(learn.parameters or {}).items() for learn, _ in learn_sections(policy)]
    for signature_id, parameters in chain.from_iterable(regions):
        base = made.get(signature_id, made[""])
        made[signature_id] = replace(
            base,
            name=signature_id,
            settings=replace(base.settings, direction=parameters.direction),
            parameters={signature_id: parameters.of},
        )
    return made


def check_learning(policy: Policy, layered: MergedPolicy) -> Iterator[Diagnostic]:
    """Bans that no call can fall under, blame that never teaches, trials that never come."""
    known = layered.is_complete and not layered.broken_names("classify")
    for learn, path in learn_sections(policy):
        if "harness" in (learn.blame or ()):
            yield layered.diagnostic(
                "reference/no-effect",
                "the harness's fault never teaches anything",
                layered.span_of((*path, "blame")),
                hint="name whose failures teach: `agent`, `unknown`, or leave `blame` out",
            )
        whole = not layered.broken_names(str(path[0]))
        if whole and layered.is_complete and learn.except_ and not _bans_targets(learn, policy):
            yield layered.diagnostic(
                "reference/no-effect",
                "`except` names classes that a ban of a target leaves alone: there is none",
                layered.span_of((*path, "except"), key=True),
                hint="write `ban: target`, or `except: []`",
            )
        weaken = learn.weaken if whole else None
        if weaken is not None and weaken.probation is not None and weaken.half_life is None:
            yield layered.diagnostic(
                "reference/no-effect",
                "`probation` is a confidence, and without `half_life` it stays at 1",
                layered.span_of((*path, "weaken", "probation"), key=True),
                hint="say in what time a ban is half as sure: `half_life: 7d`",
            )
        ban = learn.ban if learn.key is None and known else None
        if ban == "target" and not policy.classify.targets:
            yield layered.diagnostic(
                "reference/no-targets",
                "`ban: target` is about a call's targets, and no call of this policy has any",
                layered.span_of((*path, "ban")),
                hint="name the arguments that hold them: `classify: {targets: [path, paths]}`",
            )
        if ban == "class" and not policy.classify.classes and not layered.broken_names("classes"):
            yield layered.diagnostic(
                "reference/no-effect",
                "`ban: class` is about a call's class, and no call of this policy has one",
                layered.span_of((*path, "ban")),
                hint="define classes in `classify.classes`, or inherit them: `extends: [core]`",
            )


def _build_entry(
    name: str, own: Learn, base: Learn, path: Path, base_path: Path, expressions: Expressions
) -> LearnEntry:
    """One entry: what it says itself, else what `learn` says."""

    def pick(field: str) -> object:
        value = getattr(own, field)
        return getattr(base, field) if value is None else value

    def place(field: str) -> Path:
        return (*(path if getattr(own, field) is not None else base_path), field)

    def expression(field: str) -> Expression | None:
        return expressions.get(*place(field))

    return LearnEntry(
        name=name,
        settings=LearnSettings(
            corroborate=int(str(pick("corroborate"))),
            resets_on_change=pick("reset_on") != "none",
            # The narrowest ban is about one error: a call that fails anew each time gets somewhere.
            same_error=_bans_calls(own, base),
            max_constraints=own.most or base.most,
            decay=_build_decay(own.weaken or base.weaken),
        ),
        blame=frozenset(pick("blame") or ()),  # type: ignore[call-overload]  # a tuple of names
        scope=str(pick("scope")),
        scope_key=expression("scope_key"),
        ban=str(pick("ban")),
        # An own `ban` is about something else than an inherited `key`.
        key=expression("key") if own.key is not None or own.ban is None else None,
        exempt_classes=frozenset(pick("except_") or ()),  # type: ignore[call-overload]  # a tuple of names
        count_by=expression("count_by"),
        reads_outcome=reads_field(expressions.reads(*place("count_by")), "outcome"),
        parameters={},
    )


def _bans_targets(learn: Learn, policy: Policy) -> bool:
    """Whether targets are banned under a `learn`: the policy's counts for its signatures, too."""
    below = [one for one, _ in learn_sections(policy)] if learn is policy.learn else [learn]
    return any(_effective_ban(one, policy.learn or one) == "target" for one in below)


def _effective_ban(own: Learn, base: Learn) -> str | None:
    """What is banned; None where a key says it."""
    by = own if own.ban or own.key else base
    return by.ban if by.key is None else None


def _bans_calls(own: Learn, base: Learn) -> bool:
    keyed = own.key or own.count_by or ((base.key or base.count_by) if own.ban is None else None)
    return (own.ban or base.ban) == "call" and not keyed


def _build_decay(weaken: Weaken | None) -> Decay:
    if weaken is None:
        return Decay(half_life=None, lifetime=None, probe_below=0.0, forget_on_success=True)
    return Decay(
        half_life=weaken.half_life,
        lifetime=weaken.lives,
        probe_below=weaken.probation or 0.0,
        forget_on_success=weaken.on_success != "keep",
    )
