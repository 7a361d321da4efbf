"""What failures teach: properties of `Memory`, and of the Learner for what blame decides."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.learned.constraint_set import MAX_POINTS, ConstraintSet
from policyguard.learned.learn_settings import Decay, LearnSettings
from policyguard.learned.parameter_region import dominates
from policyguard.model.constraint import Constraint, Direction, Evidence, Observation
from tests.examples import examples

FOREVER = Decay(half_life=None, lifetime=None, probe_below=0.0, forget_on_success=True)
LARGE = 10**6

sizes = st.integers(0, 6)
points = st.fixed_dictionaries({"depth": sizes, "width": sizes})
directions: st.SearchStrategy[Direction] = st.sampled_from(get_args(Direction))
corroborations = st.integers(1, 3)
GRID = [{"depth": depth, "width": width} for depth in range(7) for width in range(7)]


def _memory(most: int = LARGE, most_evidence: int = LARGE) -> ConstraintSet:
    return ConstraintSet(max_constraints=most, max_evidence=most_evidence)


def _teaching(
    corroborate: int = 1,
    direction: Direction = "exact",
    *,
    reset: bool = False,
    most: int | None = None,
    weakening: Decay = FOREVER,
) -> LearnSettings:
    return LearnSettings(corroborate, reset, most, weakening, direction)


def _failure(key: str = "parameters:train:oom", **given: Any) -> Observation:
    lesson: dict[str, Any] = {"learn": "", "scope": "project:p", "signature": "oom", **given}
    return Observation(key=key, evidence_key=given.get("counted", key), ok=False, **lesson)


def _success(key: str = "parameters:train:oom", **given: Any) -> Observation:
    lesson: dict[str, Any] = {"learn": "", "scope": "project:p", **given}
    return Observation(key=key, evidence_key=key, ok=True, **lesson)


def _teach(
    memory: ConstraintSet,
    teaching: LearnSettings,
    lessons: Iterable[Observation],
    at: int | None = None,
) -> list[str]:
    return [
        memory.learn(lesson, teaching, "s", f"c{number}", at)
        for number, lesson in enumerate(lessons)
    ]


def _banned(memory: ConstraintSet, teaching: LearnSettings, point: dict[str, int]) -> bool:
    return any(
        memory.check(constraint, teaching, point, changed=False, at=None, probe_timeout=0).refused
        for constraint in memory.on_key("project:p", "parameters:train:oom")
    )


def _region(memory: ConstraintSet, teaching: LearnSettings) -> list[dict[str, int]]:
    return [point for point in GRID if _banned(memory, teaching, point)]


def _pieces(memory: ConstraintSet) -> list[Evidence]:
    return list(memory.evidence())


# Corroboration.


@settings(deadline=None)
@given(
    corroborate=st.integers(1, 4),
    keys=st.lists(st.sampled_from(["call:a", "call:b", "call:c"]), max_size=12),
    signatures=st.data(),
)
def test_fewer_failures_than_it_takes_teach_nothing(
    corroborate: int, keys: list[str], signatures: st.DataObject
) -> None:
    lessons = [
        _failure(key, signature=signatures.draw(st.sampled_from(["oom", "lost"]))) for key in keys
    ]
    memory = _memory()
    _teach(memory, _teaching(corroborate), lessons)
    failed = Counter((lesson.key, lesson.signature) for lesson in lessons)
    enough = {what for what, count in failed.items() if count >= corroborate}
    assert {(one.key, one.signature) for one in memory} == enough
    assert {(one.evidence_key, one.signature) for one in _pieces(memory)} == set(failed) - enough
    assert all(one.count == failed[one.evidence_key, one.signature] for one in _pieces(memory))


@settings(deadline=None)
@given(corroborate=corroborations, direction=directions, failing=st.lists(points, max_size=8))
def test_a_region_is_what_enough_failures_speak_against(
    corroborate: int, direction: Direction, failing: list[dict[str, int]]
) -> None:
    """Told from the definition: the points at which enough of the failures lie below, jointly."""
    teaching = _teaching(corroborate, direction)
    memory = _memory()
    _teach(memory, teaching, (_failure(point=point) for point in failing))
    expected = [
        call
        for call in GRID
        if sum(dominates(call, point, direction) for point in failing) >= corroborate
    ]
    if not any(point in expected for point in failing):
        # Evidence that no failure corroborates is none yet, wherever it would meet.
        expected = []
    assert _region(memory, teaching) == expected


@settings(deadline=None)
@given(size=st.integers(1, 6), corroborate=st.integers(2, 3), data=st.data())
def test_one_batch_is_one_observation(size: int, corroborate: int, data: st.DataObject) -> None:
    given_points: list[dict[str, int]] = data.draw(st.lists(points, max_size=3)) or [{}]
    memory = _memory()
    batch = [
        _failure(point=given_points[number % len(given_points)], batch="b")
        for number in range(size)
    ]
    _teach(memory, _teaching(corroborate, "up"), batch)
    assert not len(memory)
    assert [piece.count for piece in _pieces(memory)] == [1]


def test_the_same_batch_of_another_session_is_another_observation() -> None:
    memory, teaching = _memory(), _teaching(2)
    assert memory.learn(_failure(batch="b"), teaching, "one", "c1", None) == ""
    assert memory.learn(_failure(batch="b"), teaching, "two", "c1", None) != ""


@settings(deadline=None)
@given(order=st.permutations([("one", "a"), ("one", "b"), ("two", "a")] * 3))
def test_batches_that_come_back_in_turn_are_as_many_observations(
    order: list[tuple[str, str]],
) -> None:
    memory, teaching = _memory(), _teaching(4)
    for session, batch in order:
        assert memory.learn(_failure(batch=batch), teaching, session, "c1", None) == ""
    assert [piece.count for piece in _pieces(memory)] == [3]


@settings(deadline=None)
@given(seqs=st.lists(st.integers(1, 50), min_size=2, max_size=6, unique=True).map(sorted))
def test_a_change_in_between_begins_anew(seqs: list[int]) -> None:
    memory, teaching = _memory(), _teaching(2, reset=True)
    lessons = [_failure("call:a", seq=seq, last_change=seq - 1) for seq in seqs]
    _teach(memory, teaching, lessons)
    assert not len(memory)
    _teach(memory, teaching, [_failure("call:a", seq=99, last_change=0)])
    assert len(memory) == 1


# Widening.


@settings(deadline=None)
@given(
    corroborate=corroborations,
    direction=directions,
    failing=st.lists(points, min_size=1, max_size=12),
)
def test_a_further_failure_frees_nothing(
    corroborate: int, direction: Direction, failing: list[dict[str, int]]
) -> None:
    teaching, memory = _teaching(corroborate, direction), _memory()
    before: list[dict[str, int]] = []
    for point in failing:
        _teach(memory, teaching, [_failure(point=point)])
        region = _region(memory, teaching)
        assert all(banned in region for banned in before)
        before = region


@pytest.mark.parametrize("corroborate", [1, 2, 3])
@pytest.mark.parametrize("falling", [False, True])
def test_nor_where_there_are_more_than_are_remembered(corroborate: int, falling: bool) -> None:
    """`falling`: no point lies beyond another, so that none can go without loss."""
    drawn = random.Random(corroborate)  # noqa: S311 - points, not secrets
    depths = [drawn.randrange(200) for _ in range(MAX_POINTS + 40)]
    teaching, memory = _teaching(corroborate, "up"), _memory()
    banned: list[dict[str, int]] = []
    for number, depth in enumerate(depths):
        point = {"depth": depth, "width": 200 - depth if falling else drawn.randrange(200)}
        _teach(memory, teaching, [_failure(point=point)] * corroborate)
        if _banned(memory, teaching, point):
            banned.append(point)
        if number % 10 == 9:
            assert all(_banned(memory, teaching, known) for known in banned)
        assert all(len(one.points) <= MAX_POINTS for one in memory)
    assert len(banned) >= MAX_POINTS // corroborate


def test_a_point_that_fails_again_is_banned_in_a_region_that_exists() -> None:
    teaching, memory = _teaching(2, "up"), _memory()
    _teach(memory, teaching, [_failure(point={"depth": 10})] * 2)
    _teach(memory, teaching, [_failure(point={"depth": 8})])
    assert not _banned(memory, teaching, {"depth": 8})
    _teach(memory, teaching, [_failure(point={"depth": 8})])
    assert _banned(memory, teaching, {"depth": 8})


# Success.


@settings(deadline=None)
@given(
    corroborate=corroborations,
    direction=directions,
    failing=st.lists(points, min_size=1, max_size=8),
    good=points,
)
def test_a_success_forgets_what_it_refutes_and_no_more(
    corroborate: int, direction: Direction, failing: list[dict[str, int]], good: dict[str, int]
) -> None:
    teaching, memory = _teaching(corroborate, direction), _memory()
    _teach(memory, teaching, (_failure(point=point) for point in failing))
    held = _held_points(memory)
    _teach(memory, teaching, [_success(point=good)])
    left = [point for point in held if not dominates(good, point, direction)]
    assert _held_points(memory) == left
    assert not _banned(memory, teaching, good)


def _held_points(memory: ConstraintSet) -> list[dict[str, int]]:
    held: list[dict[str, int]] = []
    for one in (*memory, *memory.evidence()):
        held += one.points
    return held


@settings(deadline=None)
@given(what=st.sampled_from(["scope", "key", "learn"]))
def test_a_success_elsewhere_forgets_nothing(what: str) -> None:
    memory, teaching = _memory(), _teaching(1)
    _teach(memory, teaching, [_failure("call:a", learn="mine")])
    elsewhere = {"scope": "project:q"} if what == "scope" else {}
    learn = "" if what == "learn" else "mine"
    key = "call:b" if what == "key" else "call:a"
    _teach(memory, teaching, [_success(key, learn=learn, **elsewhere)])
    assert len(memory) == 1
    _teach(memory, teaching, [_success("call:a", learn="mine")])
    assert not len(memory)


@settings(deadline=None)
@given(failing=st.lists(points, min_size=1, max_size=5), good=points)
def test_what_is_kept_is_not_forgotten(failing: list[dict[str, int]], good: dict[str, int]) -> None:
    teaching = _teaching(
        2, "up", weakening=msgspec.structs.replace(FOREVER, forget_on_success=False)
    )
    memory = _memory()
    _teach(memory, teaching, (_failure(point=point) for point in failing))
    before = _region(memory, teaching), len(_pieces(memory))
    _teach(memory, teaching, [_success(point=good)])
    assert (_region(memory, teaching), len(_pieces(memory))) == before


# Order.


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), corroborate=corroborations)
def test_the_order_of_independent_lessons_does_not_matter(
    data: st.DataObject, corroborate: int
) -> None:
    """Those of different keys, whatever they are; each key's own keep their order."""
    kinds = st.tuples(st.sampled_from(["call:a", "call:b", "tool:c"]), st.booleans())
    drawn = data.draw(st.lists(kinds, max_size=14))
    lessons = [_failure(key) if failed else _success(key) for key, failed in drawn]
    shuffled = data.draw(st.permutations(range(len(lessons))))
    queues: dict[str, Iterator[Observation]] = {
        key: iter([one for one in lessons if one.key == key]) for key, _ in drawn
    }
    other = [next(queues[lessons[place].key]) for place in shuffled]
    one, two = _memory(), _memory()
    _teach(one, _teaching(corroborate), lessons)
    _teach(two, _teaching(corroborate), other)
    assert _facts(one) == _facts(two)


@settings(deadline=None)
@given(data=st.data(), corroborate=corroborations, failing=st.lists(points, max_size=10))
def test_nor_does_the_order_in_which_points_fail(
    data: st.DataObject, corroborate: int, failing: list[dict[str, int]]
) -> None:
    teaching = _teaching(corroborate, "up")
    one, two = _memory(), _memory()
    _teach(one, teaching, (_failure(point=point) for point in failing))
    _teach(two, teaching, (_failure(point=point) for point in data.draw(st.permutations(failing))))
    assert _region(one, teaching) == _region(two, teaching)


def _facts(memory: ConstraintSet) -> tuple[object, object]:
    return (
        {(one.id, one.key, one.signature, one.count) for one in memory},
        {(one.evidence_key, one.signature, one.count) for one in memory.evidence()},
    )


def _named(memory: ConstraintSet) -> dict[str, int]:
    """In how many scopes anything is known of a key: once for constraints, once for evidence."""
    bans = {(one.scope, one.key) for one in memory}
    pieces = {(one.scope, one.evidence_key) for one in memory.evidence()}
    return Counter(key for _, key in (*bans, *pieces))


# Caps.

names = st.integers(0, 30).map("call:{}".format)
anything = st.builds(
    lambda key, signature, scope, ok, point: (
        _success(key, scope=scope, point=point)
        if ok
        else _failure(key, scope=scope, signature=signature, point=point)
    ),
    key=names,
    signature=st.sampled_from(["oom", "lost", "error:1", "error:2"]),
    scope=st.sampled_from(["project:p", "project:q", "session:s"]),
    ok=st.integers(0, 4).map(lambda drawn: drawn == 0),
    point=st.one_of(st.just({}), points),
)


@settings(deadline=None)
@given(
    most=st.integers(1, 6),
    most_evidence=st.integers(1, 6),
    in_scope=st.one_of(st.none(), st.integers(1, 3)),
    corroborate=corroborations,
    lessons=st.lists(anything, max_size=60),
)
def test_whatever_happens_the_caps_hold(
    most: int,
    most_evidence: int,
    in_scope: int | None,
    corroborate: int,
    lessons: list[Observation],
) -> None:
    memory = _memory(most, most_evidence)
    teaching = _teaching(corroborate, "up", most=in_scope)
    for lesson in lessons:
        learned = memory.learn(lesson, teaching, "s", "c", None)
        assert not learned or memory.get(learned) is not None
        assert len(memory) == len(list(memory)) <= most
        assert len(_pieces(memory)) <= most_evidence
        scopes = Counter(one.scope for one in memory)
        assert in_scope is None or all(count <= in_scope for count in scopes.values())
        assert all(one in memory.on_key(one.scope, one.key) for one in memory)
        assert memory.scope_counts == _named(memory)
    for one in memory:
        memory.remove(one.id)
        assert memory.scope_counts == _named(memory)


@settings(deadline=None)
@given(lives=st.integers(1, 100), wait=st.integers(0, 200))
def test_what_has_expired_gives_up_its_place_and_is_learned_anew(lives: int, wait: int) -> None:
    teaching = _teaching(1, most=1, weakening=msgspec.structs.replace(FOREVER, lifetime=lives))
    memory = _memory()
    _teach(memory, teaching, [_failure("call:a")], at=1000)
    _teach(memory, teaching, [_failure("call:b")], at=1000 + wait)
    assert [one.key for one in memory] == ["call:b" if wait >= lives else "call:a"]


def test_evidence_that_comes_from_elsewhere_is_capped_too() -> None:
    memory = _memory(most_evidence=3)
    for number in range(10):
        memory.put_evidence(
            Evidence(scope="s", evidence_key=f"call:{number}", signature="oom", count=1)
        )
        memory.put_evidence(
            Evidence(scope="s", evidence_key=f"call:{number}", signature="oom", count=1)
        )
    assert [piece.evidence_key for piece in _pieces(memory)] == ["call:7", "call:8", "call:9"]


def test_what_was_invented_does_not_push_out_what_was_learned() -> None:
    memory, teaching = _memory(most=3, most_evidence=3), _teaching(1)
    _teach(memory, teaching, [_failure(f"call:{number}") for number in range(100)])
    assert [one.key for one in memory] == ["call:0", "call:1", "call:2"]


# Blame.

POLICY = """
policyguard: 1
name: all are blamed
signatures:
  - {id: down, pattern: down, blame: harness}
  - {id: wrong, pattern: wrong, blame: agent}
blame:
  - {id: spot, when: outcome.exit_code == 137, blame: harness}
learn:
  blame: [agent, unknown]
  corroborate: 1
  reset_on: none
  parameters: {down: {of: [n], direction: up}, wrong: {of: [n], direction: up}}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompiledPolicy:
    file: Path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(POLICY)
    return compile_policy(file)


by_harness = st.sampled_from(
    [
        {"error": "down"},
        {"error": "wrong", "exit_code": 137},
        {"error": "wrong", "blame": "harness"},
        {"error": "strange", "blame": "harness"},
    ]
)
by_others = st.sampled_from([{"result": "fine"}, {"error": "wrong"}, {"error": "strange"}])
calls = st.lists(
    st.tuples(st.integers(0, 3), st.one_of(by_harness, by_others), st.sampled_from(["", "b"])),
    max_size=20,
)


def _live(compiled: CompiledPolicy, steps: list[tuple[int, dict[str, Any], str]]) -> Guard:
    guard = Guard(compiled, clock=lambda: 0)
    session = guard.session("s")
    for number, outcome, batch in steps:
        decision = session.check("tool", {"n": number}, batch=batch)
        if decision.allowed:
            session.record(decision, **outcome)
    return guard


@settings(deadline=None)
@given(outcomes=st.lists(st.tuples(st.integers(0, 3), by_harness, st.just("")), max_size=20))
def test_a_fault_of_the_harness_teaches_nothing_whatever_the_policy_says(
    compiled: CompiledPolicy, outcomes: list[tuple[int, dict[str, Any], str]]
) -> None:
    memory = _live(compiled, outcomes)._state.constraint_set
    assert not len(memory)
    assert not _pieces(memory)


@settings(max_examples=examples(60), deadline=None)
@given(steps=calls)
def test_faults_of_the_harness_in_between_change_nothing(
    compiled: CompiledPolicy, steps: list[tuple[int, dict[str, Any], str]]
) -> None:
    agents = [step for step in steps if not _of_harness(step[1])]
    with_faults, without = _live(compiled, steps), _live(compiled, agents)
    assert _verdicts(with_faults) == _verdicts(without)
    assert _known(with_faults._state.constraint_set) == _known(without._state.constraint_set)


def _of_harness(outcome: dict[str, Any]) -> bool:
    return outcome.get("error") == "down" or bool({"exit_code", "blame"} & outcome.keys())


def _verdicts(guard: Guard) -> list[bool]:
    session = guard.session("s")
    return [session.preview("tool", {"n": number}).allowed for number in range(5)]


def _known(memory: ConstraintSet) -> Counter[tuple[str, str, int]]:
    """Without keys: fingerprints are keyed by guard."""

    def shown(one: Constraint) -> tuple[str, str, int]:
        return one.kind, "" if one.signature.startswith("error:") else one.signature, one.count

    return Counter(map(shown, memory))


def test_an_error_that_no_key_can_be_told_for_disturbs_nobody(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: a\n"
        "signatures:\n"
        "  - {id: wrong, pattern: wrong, blame: agent, learn: {corroborate: 1, ban: call}}\n"
        "learn: {key: call.args.change, reset_on: none}\n"
    )
    session = Guard.load(file).session("s")
    session.record(session.check("tool", {"n": 1}), error="wrong")
    recorded = session.record(session.check("tool", {"n": 2}), result="fine")
    assert [fault.id for fault in recorded.errors] == ["learn"]
    assert not session.check("tool", {"n": 1}).allowed, "that entry has a key of its own"
