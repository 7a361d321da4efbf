"""From the policy's `learn` to entries that a Learner works with: one for all, one a signature.

And what makes a `learn` that can teach nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from policyguard.compiler.expressions import Expressions, Path, reads_any
from policyguard.compiler.learn_sections import learns
from policyguard.evaluator.view import Expression
from policyguard.learned.teaching import Teaching, Weakening
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Learn, Policy, Weaken

if TYPE_CHECKING:
    from policyguard.compiler.layers import Layered


class LearnEntry(msgspec.Struct, frozen=True):
    """What failures of one signature (or, with an empty name, of all others) teach.

    `parameters` names the arguments of a parameter ban, by signature. `spared` are classes that a
    ban of a target leaves alone. Where `count_by` is `by_outcome`, it has no meaning for a success.
    """

    name: str
    teaching: Teaching
    blame: frozenset[str]
    scope: str
    scope_key: Expression | None
    ban: str
    key: Expression | None
    spared: frozenset[str]
    count_by: Expression | None
    by_outcome: bool
    parameters: dict[str, tuple[str, ...]]

    @property
    def plain(self) -> bool:
        """Whether it is about calls, tools or classes as they are, and looks at no arguments."""
        looks = self.key or self.scope_key or self.count_by or self.parameters
        return self.ban != "target" and not looks


def entries(policy: Policy, expressions: Expressions) -> dict[str, LearnEntry]:
    """The entries by signature; empty where the policy does not learn."""
    if policy.learn is None:
        return {}
    made = {"": _entry("", policy.learn, policy.learn, ("learn",), ("learn",), expressions)}
    for number, signature in enumerate(policy.signatures):
        if signature.learn is not None:
            made[signature.id] = _entry(
                signature.id,
                signature.learn,
                policy.learn,
                ("signatures", number, "learn"),
                ("learn",),
                expressions,
            )
    regions = [(learn.parameters or {}).items() for learn, _ in learns(policy)]
    for signature_id, parameters in chain.from_iterable(regions):
        base = made.get(signature_id, made[""])
        made[signature_id] = replace(
            base,
            name=signature_id,
            teaching=replace(base.teaching, direction=parameters.direction),
            parameters={signature_id: parameters.of},
        )
    return made


def check_learning(policy: Policy, layered: Layered) -> Iterator[Diagnostic]:
    """Bans that no call can fall under, blame that never teaches, trials that never come."""
    known = layered.complete and not layered.lost("classify")
    for learn, path in learns(policy):
        if "harness" in (learn.blame or ()):
            yield layered.diagnostic(
                "reference/idle",
                "the harness's fault never teaches anything",
                layered.where((*path, "blame")),
                hint="name whose failures teach: `agent`, `unknown`, or leave `blame` out",
            )
        whole = not layered.lost(str(path[0]))
        if whole and layered.complete and learn.except_ and not _bans_targets(learn, policy):
            yield layered.diagnostic(
                "reference/idle",
                "`except` names classes that a ban of a target leaves alone: there is none",
                layered.where((*path, "except"), key=True),
                hint="write `ban: target`, or `except: []`",
            )
        weaken = learn.weaken if whole else None
        if weaken is not None and weaken.probation is not None and weaken.half_life is None:
            yield layered.diagnostic(
                "reference/idle",
                "`probation` is a confidence, and without `half_life` it stays at 1",
                layered.where((*path, "weaken", "probation"), key=True),
                hint="say in what time a ban is half as sure: `half_life: 7d`",
            )
        ban = learn.ban if learn.key is None and known else None
        if ban == "target" and not policy.classify.targets:
            yield layered.diagnostic(
                "reference/no-targets",
                "`ban: target` is about a call's targets, and no call of this policy has any",
                layered.where((*path, "ban")),
                hint="name the arguments that hold them: `classify: {targets: [path, paths]}`",
            )
        if ban == "class" and not policy.classify.classes and not layered.lost("classes"):
            yield layered.diagnostic(
                "reference/idle",
                "`ban: class` is about a call's class, and no call of this policy has one",
                layered.where((*path, "ban")),
                hint="define classes in `classify.classes`, or inherit them: `extends: [core]`",
            )


def _entry(
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
        teaching=Teaching(
            corroborate=int(str(pick("corroborate"))),
            reset=pick("reset_on") != "none",
            # The narrowest ban is about one error: a call that fails anew each time gets somewhere.
            same_error=_bans_calls(own, base),
            most=own.most or base.most,
            weakening=_weakening(own.weaken or base.weaken),
        ),
        blame=frozenset(pick("blame") or ()),  # type: ignore[call-overload]  # a tuple of names
        scope=str(pick("scope")),
        scope_key=expression("scope_key"),
        ban=str(pick("ban")),
        # An own `ban` is about something else than an inherited `key`.
        key=expression("key") if own.key is not None or own.ban is None else None,
        spared=frozenset(pick("except_") or ()),  # type: ignore[call-overload]  # a tuple of names
        count_by=expression("count_by"),
        by_outcome=reads_any(expressions.reads(*place("count_by")), "outcome"),
        parameters={},
    )


def _bans_targets(learn: Learn, policy: Policy) -> bool:
    """Whether targets are banned under a `learn`: the policy's counts for its signatures, too."""
    below = [one for one, _ in learns(policy)] if learn is policy.learn else [learn]
    return any(_ban(one, policy.learn or one) == "target" for one in below)


def _ban(own: Learn, base: Learn) -> str | None:
    """What is banned; None where a key says it."""
    by = own if own.ban or own.key else base
    return by.ban if by.key is None else None


def _bans_calls(own: Learn, base: Learn) -> bool:
    keyed = own.key or own.count_by or ((base.key or base.count_by) if own.ban is None else None)
    return (own.ban or base.ban) == "call" and not keyed


def _weakening(weaken: Weaken | None) -> Weakening:
    if weaken is None:
        return Weakening(half_life=None, lives=None, probation=0.0, forget_on_success=True)
    return Weakening(
        half_life=weaken.half_life,
        lives=weaken.lives,
        probation=weaken.probation or 0.0,
        forget_on_success=weaken.on_success != "keep",
    )
