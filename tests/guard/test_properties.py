"""Properties that hold for any sequence of calls."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.guard.guard_state import GuardState
from policyguard.journal.format import decode, encode
from policyguard.model.event import Event
from tests.examples import examples

POLICY = """
policyguard: 1
name: properties
classify:
  fingerprint: {ignore: [id], tolerance: {rate: 0.1}}
  targets: [path, paths]
  state_changing: [edit]
  classes: [{class: edit, tools: [edit]}, {class: look, tools: [read, poll]}]
outcomes:
  envelope: [{state: pending, pattern: "^a"}]
  meta: {non_advancing: [stuck], harness: [infra]}
signatures:
  - {id: lost, pattern: lost, blame: agent}
  - {id: down, pattern: down, blame: harness}
learn: {corroborate: 2, scope: session, weaken: {half_life: 2s, probation: 0.5}}
progress: {plateau_after: 2, exhausted_after: 2, space: 3}
radius:
  - {when: call.args.n > 1, schedule: [3, 2, 1], shrink_after: 1, widen_after: 1}
  - {schedule: [unlimited, 2, 1], widen_after: 2}
limits:
  default:
    repeat: {max: 2, window: 4, same: call_and_result, advise_at: 2, halt_at: 5}
    cycle: {longest: 3, max: 2, per: turn, ask_at: 4}
    failures: {max: 3, same: error, advise_at: 3}
    no_progress: {max: 2, refuse: tool, until: progress}
    refusals: {max: 4}
    timeout: 5s
    outage: {max: 2, within: 5s, cooldown: 2s}
  tools:
    poll: {polling: {cooldown: 2s, unchanged: 2}}
    edit: {repeat: {max: 3, window: 5, same: target, refuse: tool, until: turn}}
budgets:
  calls: {calls: CALLS, per: turn, advise_at: 3, halt_at: 12}
  tokens: {tokens: 50, reserve: 4, advise_at: 30}
  asked: {calls: 6, effect: ask, extend: 2, tools: [x]}
  sum: {sum: call.args.n, max: 20, within: 5s}
  once: {concurrent: 2, tools: [read]}
  failed: {sum: "outcome.ok ? 0 : 1", max: 4}
rules:
  third:
    tools: [read]
    when: session.count('read') > 4
    effect: ask
    approval: {count: 2, within: 3s}
  changed: {when: "call.args.path == 'z'", effect: halt}
"""


def _compile(calls: int) -> CompiledPolicy:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        file.write_text(POLICY.replace("CALLS", str(calls)))
        return compile_policy(file)


_UNSAVED_ATTRIBUTES = (
    "args",
    "errors",
    "attempt_charges",
    "approval_charges",
    "timeout",
    "timeout_by",
    "_activation",
    "_is_completed",
    "ground",
)
LOOSE, STRICT = _compile(8), _compile(5)

CALLS = st.fixed_dictionaries(
    {"path": st.sampled_from("abz"), "n": st.sampled_from([0, 1, 3, 2.5])},
    optional={
        "id": st.integers(0, 3),
        "rate": st.sampled_from([1.0, 1.05, 1.2]),
        "paths": st.lists(st.sampled_from("abcd"), max_size=3),
    },
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("check"), st.sampled_from(["read", "edit", "poll", "x"]), CALLS),
        st.tuples(
            st.just("record"),
            st.integers(0, 3),
            st.sampled_from(["", "a", "lost 1", "lost 2", "down", "!"]),
            st.sampled_from([None, None, 1.0, 2, float("nan")]),
            st.sampled_from([{}, {}, {"stuck": True}, {"infra": True}]),
        ),
        st.tuples(st.just("release"), st.integers(0, 3)),
        st.tuples(st.just("turn")),
        st.tuples(st.just("spend"), st.integers(0, 5)),
        st.tuples(st.just("grant"), st.sampled_from(["calls", "tokens", "sum", "asked"])),
        st.tuples(st.just("wait"), st.integers(0, 3)),
        st.tuples(st.just("approve"), st.sampled_from(["ann", "bo"])),
    ),
    max_size=40,
)


class _SessionDriver:
    """A guard and a session that performs random steps."""

    def __init__(self, compiled: CompiledPolicy) -> None:
        self.now = 10**18
        self.events: list[Event] = []
        self.guard = Guard(compiled, clock=lambda: self.now, listener=self.events.append)
        self.session = self.guard.session("s", agent="a")
        self.pending: list[Any] = []
        self.awaiting_approval: Any = None
        self.effects: list[str] = []

    def step(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("check", tool, args):
                decision = self.session.check(tool, args)
                self.effects.append(decision.effect.value)
                if decision.allowed:
                    self.pending.append(decision)
                if decision.effect == "ask":
                    self.awaiting_approval = decision
            case ("record", index, text, score, meta) if self.pending:
                decision = self.pending.pop(index % len(self.pending))
                failed = text.startswith(("lost", "down", "!"))
                self.session.record(
                    decision,
                    result=text,
                    error=text if failed else None,
                    tokens=len(text) * 3,
                    score=score,
                    meta=meta,
                )
            case ("release", index) if self.pending:
                self.session.release(self.pending.pop(index % len(self.pending)))
            case ("turn",):
                self.session.turn()
            case ("spend", tokens):
                self.session.spend(tokens=tokens)
            case ("grant", budget):
                self.session.grant(budget, 2, by="test")
            case ("wait", seconds):
                self.now += seconds * 10**9
            case ("approve", by) if self.awaiting_approval is not None:
                self.session.approve(self.awaiting_approval, by=by)


def _class_attributes(kind: type) -> list[str]:
    """Return the public class attributes that are data."""
    return [
        name
        for name, value in vars(kind).items()
        if not (name.startswith("_") or callable(value) or isinstance(value, property))
    ]


def _to_plain_data(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """Convert any state to plain data for comparison."""
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if id(value) in seen:
        return "…"
    seen = (*seen, id(value))
    if isinstance(value, Mapping):
        return {
            str(_to_plain_data(key, seen)): _to_plain_data(item, seen)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return [_to_plain_data(item, seen) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, msgspec.Struct):
        return {
            name: _to_plain_data(getattr(value, name), seen) for name in value.__struct_fields__
        }
    if callable(value) or type(value).__name__ in ("ActivationContext", "lock"):
        return type(value).__name__  # the policy's, no state
    if type(value).__name__ == "Plan":
        return (value.tool, value.class_)
    if type(value).__name__ == "BoundPlan":
        return _to_plain_data(value.plan)
    slots = getattr(type(value), "__slots__", None)
    names = slots if slots is not None else {*_class_attributes(type(value)), *vars(value)}
    return {name: _to_plain_data(getattr(value, name, None), seen) for name in names}


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_folding_the_events_rebuilds_the_live_state(steps: list[tuple[Any, ...]]) -> None:
    driver = _SessionDriver(LOOSE)
    for step in steps:
        driver.step(step)
    rebuilt = GuardState(LOOSE)
    for event in driver.events:
        rebuilt.fold(decode(encode(event)))
    live_state, rebuilt_state = (
        _to_plain_data(driver.guard._state.evaluator_state),
        _to_plain_data(rebuilt.evaluator_state),
    )
    for state in (live_state, rebuilt_state):
        for session in state["sessions"].values():
            for name in ("running", "elapsed"):  # computed when an expression reads them
                session["cel_session"].pop(name, None)
            del session["plans_by_tool"]  # filled when a call is checked
            for pending_call in session["in_flight"].values():
                for name in _UNSAVED_ATTRIBUTES:
                    pending_call.pop(name, None)
                # None stands for a "no" that the plan remembers.
                pending_call["state_changing"] = bool(pending_call["state_changing"])
    assert rebuilt_state == live_state
    assert _to_plain_data(rebuilt.constraint_set) == _to_plain_data(
        driver.guard._state.constraint_set
    )


FAILURES_THEN_SUCCESS = [
    step
    for number, text in enumerate(["lost 1", "lost 2", "a"])
    for step in (("check", "x", {"path": "a", "n": number}), ("record", 0, text, None, {}))
]


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
@example(FAILURES_THEN_SUCCESS)
def test_fast_path_is_taken_exactly_when_no_limit_is_active(
    steps: list[tuple[Any, ...]],
) -> None:
    driver = _SessionDriver(LOOSE)
    plans: dict[Any, None] = {}
    for step in steps:
        driver.step(step)
        for state in driver.guard._state.evaluator_state.sessions.values():
            expected_active = set()
            expected_open = set()
            plans.update(dict.fromkeys(state._bound_plans))
            for plan in plans:
                for one in plan.limits:
                    tracker = state.get_tracker(one)
                    if one.may_be_active and one.is_active(tracker):
                        expected_active.add(one.id)
                    elif one.may_be_active and one.counts_streaks and tracker:
                        expected_open.add(one.id)
                if plan.refusals is not None and state.get_tracker(plan.refusals).count:
                    expected_active.add(plan.refusals.id)
            assert set(state.active_limits) == expected_active
            assert set(state.open_streaks) == expected_open
            cached = state.on_fast_path
            state.refresh_fast_path()
            assert cached is state.on_fast_path


@settings(max_examples=examples(100), deadline=None)
@given(STEPS, CALLS)
def test_previews_change_nothing(steps: list[tuple[Any, ...]], args: dict[str, Any]) -> None:
    without_previews, with_previews = _SessionDriver(LOOSE), _SessionDriver(LOOSE)
    for step in steps:
        for tool in ("read", "edit", "poll"):
            with_previews.session.preview(tool, args)
        without_previews.step(step)
        with_previews.step(step)
    assert without_previews.effects == with_previews.effects


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_stricter_budget_never_allows_more(
    steps: list[tuple[Any, ...]],
) -> None:
    loose, strict = _SessionDriver(LOOSE), _SessionDriver(STRICT)
    for step in steps:
        if step[0] == "check":
            preview = strict.session.preview(step[1], step[2])
            if preview.allowed:
                assert loose.session.preview(step[1], step[2]).allowed
            if not (preview.allowed and loose.session.preview(step[1], step[2]).allowed):
                continue
        loose.step(step)
        strict.step(step)


@settings(max_examples=examples(60), deadline=None)
@given(st.permutations(["a", "b", "c"]), CALLS)
def test_order_of_rules_does_not_matter(order: list[str], args: dict[str, Any]) -> None:
    rules = {
        "a": "a: {when: 'call.args.n > 0', effect: advise}",
        "b": "b: {when: \"call.args.path == 'z'\", effect: ask}",
        "c": "c: {when: 'call.args.missing > 0', on_error: block}",
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        body = "\n  ".join(rules[name] for name in order)
        file.write_text(f"policyguard: 1\nname: order\nrules:\n  {body}\n")
        decision = Guard.load(file).session("s").check("read", args)
    assert decision.effect == "block"
    assert {violation.id for violation in decision.violations} == {
        "rules/c",
        *(["rules/a"] if args["n"] > 0 else []),
        *(["rules/b"] if args["path"] == "z" else []),
    }
