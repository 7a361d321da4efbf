"""What failures teach: properties of `ConstraintSet`, and of the guard for blame."""

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
from policyguard.learned.constraint_set import (
    MAX_POINTS,
    MAX_SOURCES,
    ConstraintSet,
    constraint_id,
)
from policyguard.learned.learn_settings import Decay, LearnSettings
from policyguard.learned.parameter_region import dominates
from policyguard.model.constraint import Constraint, Direction, Evidence, Observation
from tests.examples import examples

FOREVER = Decay(half_life=None, lifetime=None, probe_below=0.0, forget_on_success=True)
LARGE = 10**6

sizes = st.integers(0, 6)
points = st.fixed_dictionaries({"depth": sizes, "width": sizes})
directions: st.SearchStrategy[Direction] = st.sampled_from(get_args(Direction))
corroborate_counts = st.integers(1, 3)
GRID = [{"depth": depth, "width": width} for depth in range(7) for width in range(7)]


def _constraint_set(max_constraints: int = LARGE, max_evidence: int = LARGE) -> ConstraintSet:
    return ConstraintSet(max_constraints=max_constraints, max_evidence=max_evidence)


def _learn_settings(
    corroborate: int = 1,
    direction: Direction = "exact",
    *,
    reset: bool = False,
    max_constraints: int | None = None,
    decay: Decay = FOREVER,
) -> LearnSettings:
    return LearnSettings(corroborate, reset, max_constraints, decay, direction)


def _failure(key: str = "parameters:train:oom", **given: Any) -> Observation:
    observation: dict[str, Any] = {"learn": "", "scope": "project:p", "signature": "oom", **given}
    return Observation(key=key, evidence_key=given.get("counted", key), ok=False, **observation)


def _success(key: str = "parameters:train:oom", **given: Any) -> Observation:
    observation: dict[str, Any] = {"learn": "", "scope": "project:p", **given}
    return Observation(key=key, evidence_key=key, ok=True, **observation)


def _learn(
    constraints: ConstraintSet,
    config: LearnSettings,
    observations: Iterable[Observation],
    at: int | None = None,
) -> list[str]:
    return [
        constraints.learn(observation, config, "s", f"c{number}", at)
        for number, observation in enumerate(observations)
    ]


def _is_banned(constraints: ConstraintSet, config: LearnSettings, point: dict[str, int]) -> bool:
    return any(
        constraints.check(
            constraint, config, point, changed=False, at=None, probe_timeout=0
        ).refused
        for constraint in constraints.on_key("project:p", "parameters:train:oom")
    )


def _banned_region(constraints: ConstraintSet, config: LearnSettings) -> list[dict[str, int]]:
    return [point for point in GRID if _is_banned(constraints, config, point)]


def _evidence(constraints: ConstraintSet) -> list[Evidence]:
    return list(constraints.evidence())


# Corroboration.


@settings(deadline=None)
@given(
    corroborate=st.integers(1, 4),
    keys=st.lists(st.sampled_from(["call:a", "call:b", "call:c"]), max_size=12),
    signatures=st.data(),
)
def test_constraint_needs_enough_failures_of_one_signature(
    corroborate: int, keys: list[str], signatures: st.DataObject
) -> None:
    observations = [
        _failure(key, signature=signatures.draw(st.sampled_from(["oom", "lost"]))) for key in keys
    ]
    constraints = _constraint_set()
    _learn(constraints, _learn_settings(corroborate), observations)
    failed = Counter((observation.key, observation.signature) for observation in observations)
    learned = {key for key, count in failed.items() if count >= corroborate}
    assert {(one.key, one.signature) for one in constraints} == learned
    assert {(one.evidence_key, one.signature) for one in _evidence(constraints)} == set(
        failed
    ) - learned
    assert all(
        one.count == failed[one.evidence_key, one.signature] for one in _evidence(constraints)
    )


@settings(deadline=None)
@given(corroborate=corroborate_counts, direction=directions, failing=st.lists(points, max_size=8))
def test_region_holds_points_dominating_enough_failures(
    corroborate: int, direction: Direction, failing: list[dict[str, int]]
) -> None:
    """The expectation follows the definition: points that dominate enough failures."""
    config = _learn_settings(corroborate, direction)
    constraints = _constraint_set()
    _learn(constraints, config, (_failure(point=point) for point in failing))
    expected = [
        call
        for call in GRID
        if sum(dominates(call, point, direction) for point in failing) >= corroborate
    ]
    if not any(point in expected for point in failing):
        # Nothing is banned before a failure is corroborated.
        expected = []
    assert _banned_region(constraints, config) == expected


def test_constraint_counts_what_taught_and_what_confirmed_it() -> None:
    constraints = _constraint_set()
    _learn(constraints, _learn_settings(2), [_failure()] * 5)
    assert [constraint.count for constraint in constraints] == [5]


@pytest.mark.parametrize(("at", "confirmed_at"), [(9, 9), (None, 5)])
def test_constraint_is_confirmed_when_its_failure_returns(
    at: int | None, confirmed_at: int
) -> None:
    constraints, config = _constraint_set(), _learn_settings(1)
    _learn(constraints, config, [_failure("call:a")], at=5)
    _learn(constraints, config, [_failure("call:a")], at=at)
    (constraint,) = constraints
    assert (constraint.learned_at, constraint.confirmed_at) == (5, confirmed_at)


def test_constraint_names_the_first_calls_that_taught_it() -> None:
    constraints = _constraint_set()
    _learn(constraints, _learn_settings(MAX_SOURCES + 2), [_failure()] * (MAX_SOURCES + 2))
    (constraint,) = constraints
    assert constraint.taught_by == tuple(f"s/c{number}" for number in range(MAX_SOURCES))


def test_constraint_on_parameters_has_a_kind_of_its_own() -> None:
    constraints = _constraint_set()
    _learn(constraints, _learn_settings(), [_failure("call:a"), _failure(point={"depth": 3})])
    assert [one.kind for one in constraints] == ["banned_strategy", "parameter_ban"]


def test_redundant_point_makes_room_for_one_that_bans_more() -> None:
    constraints, config = _constraint_set(), _learn_settings(1, "up")
    last = {"depth": 2 * MAX_POINTS, "width": 0}
    frontier = [
        {"depth": 2 * number, "width": 2 * (MAX_POINTS - number)}
        for number in range(MAX_POINTS - 1)
    ]
    redundant = {"depth": 0, "width": 2 * MAX_POINTS + 1}
    _learn(constraints, config, [_failure(point=one) for one in (*frontier, redundant, last)])
    assert _is_banned(constraints, config, last)
    assert all(_is_banned(constraints, config, one) for one in (*frontier, redundant))


def test_a_parameter_ban_keeps_64_points() -> None:
    constraints, config = _constraint_set(), _learn_settings(1, "up")
    incomparable = [{"depth": number, "width": 70 - number} for number in range(70)]
    _learn(constraints, config, [_failure(point=one) for one in incomparable])
    (constraint,) = constraints
    assert [*constraint.points] == incomparable[:64]


@settings(deadline=None)
@given(size=st.integers(1, 6), corroborate=st.integers(2, 3), data=st.data())
def test_failures_of_one_batch_count_once(size: int, corroborate: int, data: st.DataObject) -> None:
    batch_points: list[dict[str, int]] = data.draw(st.lists(points, max_size=3)) or [{}]
    constraints = _constraint_set()
    batch = [
        _failure(point=batch_points[number % len(batch_points)], batch="b")
        for number in range(size)
    ]
    _learn(constraints, _learn_settings(corroborate, "up"), batch)
    assert not len(constraints)
    assert [evidence.count for evidence in _evidence(constraints)] == [1]


@pytest.mark.parametrize("same_error", [False, True])
def test_another_error_restarts_the_count_where_errors_are_compared(same_error: bool) -> None:
    config = msgspec.structs.replace(_learn_settings(2), same_error=same_error)
    constraints = _constraint_set()
    _learn(constraints, config, [_failure("call:a", error_fingerprint=one) for one in "xy"])
    assert len(constraints) == (0 if same_error else 1)
    _learn(constraints, config, [_failure("call:a", error_fingerprint="y")])
    assert len(constraints) == 1


def test_batch_ids_are_per_session() -> None:
    constraints, config = _constraint_set(), _learn_settings(2)
    assert constraints.learn(_failure(batch="b"), config, "one", "c1", None) == ""
    assert constraints.learn(_failure(batch="b"), config, "two", "c1", None) != ""


@settings(deadline=None)
@given(order=st.permutations([("one", "a"), ("one", "b"), ("two", "a")] * 3))
def test_interleaved_batches_count_once_each(
    order: list[tuple[str, str]],
) -> None:
    constraints, config = _constraint_set(), _learn_settings(4)
    for session, batch in order:
        assert constraints.learn(_failure(batch=batch), config, session, "c1", None) == ""
    assert [evidence.count for evidence in _evidence(constraints)] == [3]


@settings(deadline=None)
@given(seqs=st.lists(st.integers(1, 50), min_size=2, max_size=6, unique=True).map(sorted))
def test_state_change_discards_earlier_evidence(seqs: list[int]) -> None:
    constraints, config = _constraint_set(), _learn_settings(2, reset=True)
    observations = [_failure("call:a", seq=seq, last_change=seq - 1) for seq in seqs]
    _learn(constraints, config, observations)
    assert not len(constraints)
    _learn(constraints, config, [_failure("call:a", seq=99, last_change=0)])
    assert len(constraints) == 1


# Widening.


@settings(deadline=None)
@given(
    corroborate=corroborate_counts,
    direction=directions,
    failing=st.lists(points, min_size=1, max_size=12),
)
def test_another_failure_never_shrinks_the_region(
    corroborate: int, direction: Direction, failing: list[dict[str, int]]
) -> None:
    config, constraints = _learn_settings(corroborate, direction), _constraint_set()
    before: list[dict[str, int]] = []
    for point in failing:
        _learn(constraints, config, [_failure(point=point)])
        region = _banned_region(constraints, config)
        assert all(banned in region for banned in before)
        before = region


@pytest.mark.parametrize("corroborate", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("incomparable", [False, True])
def test_region_never_shrinks_when_points_are_dropped(corroborate: int, incomparable: bool) -> None:
    """`incomparable`: no point dominates another, so none can be dropped without loss."""
    rng = random.Random(corroborate)  # noqa: S311 - points, not secrets
    depths = [rng.randrange(200) for _ in range(MAX_POINTS + 40)]
    config, constraints = _learn_settings(corroborate, "up"), _constraint_set()
    banned: list[dict[str, int]] = []
    for number, depth in enumerate(depths):
        point = {"depth": depth, "width": 200 - depth if incomparable else rng.randrange(200)}
        _learn(constraints, config, [_failure(point=point)] * corroborate)
        if _is_banned(constraints, config, point):
            banned.append(point)
        if number % 10 == 9:
            assert all(_is_banned(constraints, config, known) for known in banned)
        assert all(len(one.points) <= MAX_POINTS for one in constraints)
    assert len(banned) >= MAX_POINTS // corroborate


@pytest.mark.parametrize("corroborate", [1, 2, 3])
def test_a_point_is_kept_as_often_as_it_takes_to_corroborate_itself(corroborate: int) -> None:
    config, constraints = _learn_settings(corroborate, "up"), _constraint_set()
    for depth in (5, 3):
        _learn(constraints, config, [_failure(point={"depth": depth})] * (corroborate + 2))
    (constraint,) = constraints
    assert Counter(point["depth"] for point in constraint.points) == {
        5: corroborate,
        3: corroborate,
    }


def test_repeated_failure_widens_an_existing_region() -> None:
    config, constraints = _learn_settings(2, "up"), _constraint_set()
    _learn(constraints, config, [_failure(point={"depth": 10})] * 2)
    _learn(constraints, config, [_failure(point={"depth": 8})])
    assert not _is_banned(constraints, config, {"depth": 8})
    _learn(constraints, config, [_failure(point={"depth": 8})])
    assert _is_banned(constraints, config, {"depth": 8})


# Success.


@settings(deadline=None)
@given(
    corroborate=corroborate_counts,
    direction=directions,
    failing=st.lists(points, min_size=1, max_size=8),
    successful=points,
)
def test_success_drops_only_refuted_points(
    corroborate: int,
    direction: Direction,
    failing: list[dict[str, int]],
    successful: dict[str, int],
) -> None:
    config, constraints = _learn_settings(corroborate, direction), _constraint_set()
    _learn(constraints, config, (_failure(point=point) for point in failing))
    before = _points(constraints)
    _learn(constraints, config, [_success(point=successful)])
    remaining = [point for point in before if not dominates(successful, point, direction)]
    assert _points(constraints) == remaining
    assert not _is_banned(constraints, config, successful)


def _points(constraints: ConstraintSet) -> list[dict[str, int]]:
    points: list[dict[str, int]] = []
    for one in (*constraints, *constraints.evidence()):
        points += one.points
    return points


def test_success_outside_the_region_changes_nothing() -> None:
    constraints, config = _constraint_set(), _learn_settings(1, "up")
    _learn(constraints, config, [_failure(point={"depth": 10})] * 3)
    constraints.changed_ids.clear()
    _learn(constraints, config, [_success(point={"depth": 9})])
    assert [one.count for one in constraints] == [3]
    assert not constraints.changed_ids


@settings(deadline=None)
@given(difference=st.sampled_from(["scope", "key", "learn"]))
def test_success_in_another_scope_key_or_section_changes_nothing(difference: str) -> None:
    constraints, config = _constraint_set(), _learn_settings(1)
    _learn(constraints, config, [_failure("call:a", learn="mine")])
    scope = {"scope": "project:q"} if difference == "scope" else {}
    learn = "" if difference == "learn" else "mine"
    key = "call:b" if difference == "key" else "call:a"
    _learn(constraints, config, [_success(key, learn=learn, **scope)])
    assert len(constraints) == 1
    _learn(constraints, config, [_success("call:a", learn="mine")])
    assert not len(constraints)


@settings(deadline=None)
@given(failing=st.lists(points, min_size=1, max_size=5), successful=points)
def test_success_keeps_constraints_when_configured(
    failing: list[dict[str, int]], successful: dict[str, int]
) -> None:
    config = _learn_settings(
        2, "up", decay=msgspec.structs.replace(FOREVER, forget_on_success=False)
    )
    constraints = _constraint_set()
    _learn(constraints, config, (_failure(point=point) for point in failing))
    before = _banned_region(constraints, config), len(_evidence(constraints))
    _learn(constraints, config, [_success(point=successful)])
    assert (_banned_region(constraints, config), len(_evidence(constraints))) == before


# Order.


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), corroborate=corroborate_counts)
def test_order_of_observations_of_different_keys_does_not_matter(
    data: st.DataObject, corroborate: int
) -> None:
    """Observations of one key keep their order."""
    kinds = st.tuples(st.sampled_from(["call:a", "call:b", "tool:c"]), st.booleans())
    pairs = data.draw(st.lists(kinds, max_size=14))
    observations = [_failure(key) if failed else _success(key) for key, failed in pairs]
    shuffled = data.draw(st.permutations(range(len(observations))))
    queues: dict[str, Iterator[Observation]] = {
        key: iter([one for one in observations if one.key == key]) for key, _ in pairs
    }
    reordered = [next(queues[observations[index].key]) for index in shuffled]
    one, two = _constraint_set(), _constraint_set()
    _learn(one, _learn_settings(corroborate), observations)
    _learn(two, _learn_settings(corroborate), reordered)
    assert _contents(one) == _contents(two)


@settings(deadline=None)
@given(data=st.data(), corroborate=corroborate_counts, failing=st.lists(points, max_size=10))
def test_order_of_failing_points_does_not_matter(
    data: st.DataObject, corroborate: int, failing: list[dict[str, int]]
) -> None:
    config = _learn_settings(corroborate, "up")
    one, two = _constraint_set(), _constraint_set()
    _learn(one, config, (_failure(point=point) for point in failing))
    _learn(
        two,
        config,
        (_failure(point=point) for point in data.draw(st.permutations(failing))),
    )
    assert _banned_region(one, config) == _banned_region(two, config)


def _contents(constraints: ConstraintSet) -> tuple[object, object]:
    return (
        {(one.id, one.key, one.signature, one.count) for one in constraints},
        {(one.evidence_key, one.signature, one.count) for one in constraints.evidence()},
    )


def _scope_counts(constraints: ConstraintSet) -> dict[str, int]:
    """Count per key the scopes that hold constraints, and those that hold evidence."""
    bans = {(one.scope, one.key) for one in constraints}
    evidence = {(one.scope, one.evidence_key) for one in constraints.evidence()}
    return Counter(key for _, key in (*bans, *evidence))


def _assert_counts_match(constraints: ConstraintSet) -> None:
    """Compare what is counted along the way with what is held."""
    scope_counts = _scope_counts(constraints)
    assert constraints.scope_counts == scope_counts
    assert constraints.known_calls == {key.removeprefix("call:") for key in scope_counts}
    assert constraints.evidence_count == len(_evidence(constraints))
    assert constraints._in_scope.keys() == {one.scope for one in constraints}


# Caps.

names = st.integers(0, 30).map("call:{}".format)
any_observation = st.builds(
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
    max_constraints=st.integers(1, 6),
    max_evidence=st.integers(1, 6),
    max_in_scope=st.one_of(st.none(), st.integers(1, 3)),
    corroborate=corroborate_counts,
    observations=st.lists(any_observation, max_size=60),
)
def test_caps_always_hold(
    max_constraints: int,
    max_evidence: int,
    max_in_scope: int | None,
    corroborate: int,
    observations: list[Observation],
) -> None:
    constraints = _constraint_set(max_constraints, max_evidence)
    config = _learn_settings(corroborate, "up", max_constraints=max_in_scope)
    for observation in observations:
        learned = constraints.learn(observation, config, "s", "c", None)
        assert not learned or constraints.get(learned) is not None
        assert len(constraints) == len(list(constraints)) <= max_constraints
        assert len(_evidence(constraints)) <= max_evidence
        scopes = Counter(one.scope for one in constraints)
        assert max_in_scope is None or all(count <= max_in_scope for count in scopes.values())
        assert all(one in constraints.on_key(one.scope, one.key) for one in constraints)
        _assert_counts_match(constraints)
    for one in constraints:
        constraints.remove(one.id)
        _assert_counts_match(constraints)


@settings(deadline=None)
@given(lifetime=st.integers(1, 100), elapsed=st.integers(0, 200))
def test_expired_constraint_makes_room_for_a_new_one(lifetime: int, elapsed: int) -> None:
    config = _learn_settings(
        1, max_constraints=1, decay=msgspec.structs.replace(FOREVER, lifetime=lifetime)
    )
    constraints = _constraint_set()
    _learn(constraints, config, [_failure("call:a")], at=1000)
    _learn(constraints, config, [_failure("call:b")], at=1000 + elapsed)
    assert [one.key for one in constraints] == ["call:b" if elapsed >= lifetime else "call:a"]


def test_expired_constraints_are_removed_only_for_lack_of_room() -> None:
    config = _learn_settings(
        1, max_constraints=2, decay=msgspec.structs.replace(FOREVER, lifetime=10)
    )
    constraints = _constraint_set()
    _learn(constraints, config, [_failure("call:a")], at=0)
    _learn(constraints, config, [_failure("call:b")], at=20)
    assert [one.key for one in constraints] == ["call:a", "call:b"]
    _learn(constraints, config, [_failure("call:c")], at=20)
    assert [one.key for one in constraints] == ["call:b", "call:c"]


@pytest.mark.parametrize("times", [(1, None), (None, 1)])
def test_a_constraint_without_a_time_was_confirmed_before_all_others(
    times: tuple[int | None, int | None],
) -> None:
    constraints = _constraint_set()
    for at, key in zip(times, ("call:a", "call:b"), strict=True):
        _learn(constraints, _learn_settings(), [_failure(key)], at=at)
    assert [one.confirmed_at for one in constraints.by_confirmation()] == [None, 1]


def test_an_expired_constraint_is_learned_anew() -> None:
    config = _learn_settings(2, decay=msgspec.structs.replace(FOREVER, lifetime=10))
    constraints = _constraint_set()
    assert (
        _learn(constraints, config, [_failure("call:a")] * 3, at=0)[1:]
        == [constraint_id(_failure("call:a"))] * 2
    )
    assert _learn(constraints, config, [_failure("call:a")], at=10) == [""]


def test_a_constraint_does_not_expire_at_an_unknown_time() -> None:
    config = _learn_settings(1, decay=msgspec.structs.replace(FOREVER, lifetime=10))
    constraints = _constraint_set()
    _learn(constraints, config, [_failure()], at=0)
    assert _is_banned(constraints, config, {})


def test_a_constraint_that_never_fades_admits_no_probe() -> None:
    config = _learn_settings(1, decay=msgspec.structs.replace(FOREVER, probe_below=1.0))
    constraints = _constraint_set()
    _learn(constraints, config, [_failure()], at=0)
    assert _is_banned(constraints, config, {})


def test_a_success_ends_what_its_entry_taught_among_others_on_the_key() -> None:
    constraints, config = _constraint_set(), _learn_settings(1)
    for learn in ("one", "two", "three"):
        _learn(constraints, config, [_failure("call:a", learn=learn, signature=learn)])
    _learn(constraints, config, [_success("call:a", learn="two")])
    assert [one.learn for one in constraints] == ["one", "three"]


def test_a_success_ends_all_that_its_entry_taught_on_the_key() -> None:
    """Also evidence; a region is ended only as far as the success refutes it."""
    constraints, config = _constraint_set(), _learn_settings(2, "up")
    for signature in ("one", "two", "three"):
        _learn(constraints, config, [_failure("call:a", signature=signature)] * 2)
        _learn(constraints, config, [_failure("call:a", signature=f"{signature} once")])
    for signature, depth in (("low", 1), ("high", 9), ("low too", 1)):
        failing = _failure("call:a", signature=signature, point={"depth": depth})
        _learn(constraints, config, [failing] * 2)
    _learn(constraints, config, [_success("call:a", point={"depth": 5})])
    assert [one.signature for one in constraints] == ["high"]
    assert not _evidence(constraints)
    assert constraints.evidence_count == 0


def test_a_scope_that_ends_leaves_nothing() -> None:
    constraints, config = _constraint_set(), _learn_settings(2)
    for scope in ("session:a", "session:a\x1fgroup", "session:ab", "project:session:a"):
        _learn(constraints, config, [_failure("call:x", scope=scope, signature="one")])
        _learn(constraints, config, [_failure("call:y", scope=scope)] * 2)
    constraints.remove_scope("session:a")
    left = {"session:ab", "project:session:a"}
    assert {one.scope for one in constraints} == left
    assert {one.scope for one in constraints.evidence()} == left
    assert {scope for scope, _ in constraints._by_key} == left


def test_stored_evidence_is_capped() -> None:
    constraints = _constraint_set(max_evidence=3)
    for number in range(10):
        constraints.put_evidence(
            Evidence(scope="s", evidence_key=f"call:{number}", signature="oom", count=1)
        )
        constraints.put_evidence(
            Evidence(scope="s", evidence_key=f"call:{number}", signature="oom", count=1)
        )
    assert [evidence.evidence_key for evidence in _evidence(constraints)] == [
        "call:7",
        "call:8",
        "call:9",
    ]


def test_failures_of_as_many_kinds_as_are_kept_teach() -> None:
    """Those of the oldest kind go when there is one kind more."""
    keys = [f"call:{number}" for number in range(3)]
    for more, taught in (([], 3), (["call:more"], 0)):
        constraints, config = _constraint_set(max_evidence=3), _learn_settings(2)
        _learn(constraints, config, map(_failure, [*keys, *more]))
        _learn(constraints, config, map(_failure, keys))
        assert len(constraints.constraints) == taught


def test_latest_revoked_ids_are_remembered() -> None:
    constraints = _constraint_set(max_constraints=3)
    for number in range(5):
        constraints.revoke(f"k{number}")
    assert constraints.revoked() == ("k2", "k3", "k4")


def test_what_is_learned_confirmed_or_revoked_is_to_be_saved() -> None:
    constraints, config = _constraint_set(), _learn_settings(1)
    (id_,) = _learn(constraints, config, [_failure("call:a")], at=0)
    assert constraints.changed_ids == {id_}
    constraints.changed_ids.clear()
    _learn(constraints, config, [_failure("call:a")], at=1)
    assert constraints.changed_ids == {id_}
    constraints.changed_ids.clear()
    revoked = constraints.revoke(id_)
    assert revoked is not None
    assert revoked.id == id_
    assert constraints.changed_ids == {id_}
    constraints.changed_ids.clear()
    assert constraints.revoke(id_) is None
    assert constraints.changed_ids == set()


@pytest.mark.parametrize(
    ("began_at", "at", "expected"),
    [(5, 14, True), (5, 15, False), (None, 15, True), (5, None, True), (None, None, True)],
)
def test_probe_of_unknown_age_is_under_way(
    began_at: int | None, at: int | None, expected: bool
) -> None:
    constraints = _constraint_set()
    assert not constraints.is_probing("k", at, 10)
    constraints.begin_probe("k", began_at)
    assert constraints.is_probing("k", at, 10) is expected


def test_faded_constraint_admits_one_probe_at_a_time() -> None:
    decay = Decay(half_life=10, lifetime=None, probe_below=0.5, forget_on_success=True)
    constraints, config = _constraint_set(), _learn_settings(1, decay=decay)
    (id_,) = _learn(constraints, config, [_failure("call:a")], at=100)

    def check(at: int | None) -> tuple[bool, bool, float]:
        constraint = constraints.constraints[id_]
        found = constraints.check(constraint, config, {}, changed=False, at=at, probe_timeout=5)
        return found.refused, found.probe, found.confidence

    assert check(105)[:2] == (True, False)
    assert check(110) == (False, True, 0.5)
    constraints.begin_probe(id_, 110)
    assert check(114)[:2] == (True, False)
    assert check(115)[:2] == (False, True)
    assert check(None) == (True, False, 1.0)


def test_constraint_of_unknown_age_does_not_fade() -> None:
    decay = Decay(half_life=10, lifetime=20, probe_below=0.5, forget_on_success=True)
    constraints, config = _constraint_set(), _learn_settings(1, decay=decay)
    _learn(constraints, config, [_failure("call:a")])
    (constraint,) = constraints
    found = constraints.check(constraint, config, {}, changed=False, at=99, probe_timeout=5)
    assert (found.refused, found.confidence) == (True, 1.0)


def test_new_keys_do_not_evict_learned_constraints() -> None:
    constraints, config = (
        _constraint_set(max_constraints=3, max_evidence=3),
        _learn_settings(1),
    )
    _learn(constraints, config, [_failure(f"call:{number}") for number in range(100)])
    assert [one.key for one in constraints] == ["call:0", "call:1", "call:2"]


# Blame.

POLICY = """
policyguard: 1
name: all-blamed
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


harness_failures = st.sampled_from(
    [
        {"error": "down"},
        {"error": "wrong", "exit_code": 137},
        {"error": "wrong", "blame": "harness"},
        {"error": "strange", "blame": "harness"},
    ]
)
other_outcomes = st.sampled_from([{"result": "fine"}, {"error": "wrong"}, {"error": "strange"}])
calls = st.lists(
    st.tuples(
        st.integers(0, 3), st.one_of(harness_failures, other_outcomes), st.sampled_from(["", "b"])
    ),
    max_size=20,
)


def _run_session(compiled: CompiledPolicy, steps: list[tuple[int, dict[str, Any], str]]) -> Guard:
    guard = Guard(compiled, clock=lambda: 0)
    session = guard.session("s")
    for number, outcome, batch in steps:
        decision = session.check("tool", {"n": number}, batch=batch)
        if decision.allowed:
            session.record(decision, **outcome)
    return guard


@settings(deadline=None)
@given(outcomes=st.lists(st.tuples(st.integers(0, 3), harness_failures, st.just("")), max_size=20))
def test_harness_failures_never_teach(
    compiled: CompiledPolicy, outcomes: list[tuple[int, dict[str, Any], str]]
) -> None:
    constraints = _run_session(compiled, outcomes)._state.constraint_set
    assert not len(constraints)
    assert not _evidence(constraints)


@settings(max_examples=examples(60), deadline=None)
@given(steps=calls)
def test_harness_failures_do_not_change_what_others_teach(
    compiled: CompiledPolicy, steps: list[tuple[int, dict[str, Any], str]]
) -> None:
    agent_steps = [step for step in steps if not _blames_harness(step[1])]
    with_harness, without_harness = (
        _run_session(compiled, steps),
        _run_session(compiled, agent_steps),
    )
    assert _previews(with_harness) == _previews(without_harness)
    assert _summary(with_harness._state.constraint_set) == _summary(
        without_harness._state.constraint_set
    )


def _blames_harness(outcome: dict[str, Any]) -> bool:
    return outcome.get("error") == "down" or bool({"exit_code", "blame"} & outcome.keys())


def _previews(guard: Guard) -> list[bool]:
    session = guard.session("s")
    return [session.preview("tool", {"n": number}).allowed for number in range(5)]


def _summary(constraints: ConstraintSet) -> Counter[tuple[str, str, int]]:
    """Describe constraints without keys, which differ by guard."""

    def summarize(one: Constraint) -> tuple[str, str, int]:
        return one.kind, "" if one.signature.startswith("error:") else one.signature, one.count

    return Counter(map(summarize, constraints))


def test_failing_learn_key_does_not_affect_other_sections(tmp_path: Path) -> None:
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
    assert [error.id for error in recorded.errors] == ["learn"]
    assert not session.check("tool", {"n": 1}).allowed, "that section has its own key"


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("changed", [True, False])
def test_constraint_ends_with_a_change_only_if_it_resets(reset: bool, changed: bool) -> None:
    constraints, config = _constraint_set(), _learn_settings(reset=reset)
    _learn(constraints, config, [_failure()])
    (constraint,) = constraints
    checked = constraints.check(constraint, config, None, changed=changed, at=None, probe_timeout=0)
    assert checked.refused is not (reset and changed)
