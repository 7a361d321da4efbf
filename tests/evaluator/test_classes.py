"""The classes of a call: every entry that matches, as far as something reads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.evaluator.plan import ClassCandidates, ClassOption

OPTION = st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans(), st.booleans())


@given(st.lists(OPTION, max_size=6))
def test_the_classes_of_a_call_are_between_the_fewest_and_the_most(
    drawn: list[tuple[str, bool, bool, bool]],
) -> None:
    read = {name for name, _, is_read, _ in drawn if is_read}
    matching = []
    options = []
    for name, is_certain, _, holds in drawn:
        condition: Any = None if is_certain else (lambda activation, holds=holds: holds)
        options.append(ClassOption(name, condition, name in read))
        if is_certain or holds:
            matching.append(name)
    candidates = ClassCandidates(tuple(options))
    attempt: Any = SimpleNamespace(activation=None)
    classes = candidates.classify(attempt)

    assert classes[:1] == tuple(matching[:1])
    assert set(classes[1:]) == (set(matching) & read) - set(matching[:1])
    assert len(set(classes)) == len(classes)
    bounds = [one for one in candidates.extremes() if one[:1] == classes[:1]]
    assert any(set(one) <= set(classes) for one in bounds)
    assert any(set(classes) <= set(one) for one in bounds)
    if candidates.fixed_classes is not None:
        assert set(candidates.fixed_classes) >= set(classes)


def test_a_condition_that_fails_is_reported_where_nothing_else_concerns_the_call(
    tmp_path: Path,
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "policyguard: 1\nname: p\n"
        "classify: {classes: [{class: big, tools: [a], when: call.args.n > 1}]}\n"
        "rules: {big: {classes: [big], tools: [b]}}\n"
    )
    session = Guard.load(file).session("s")
    assert session.check("a", {"n": 2}).errors == ()
    decision = session.check("a", {})
    assert decision.effect == "allow"
    assert [error.id for error in decision.errors] == ["classify/classes/big"]
