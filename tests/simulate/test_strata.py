"""Stratified samples: what is drawn, and how often their intervals cover the truth."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.model.event import SessionStarted
from policyguard.report.replay.figures import Figures, StratumFigures
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.sample import strata as strata_module
from policyguard.simulate.sample.proportions import (
    StratumSample,
    estimate_share,
    share,
    wilson_interval,
)
from policyguard.simulate.sample.sampling import Draw, SessionNumbers, SessionSample
from policyguard.simulate.sample.strata import MIN_DRAWN, Strata
from policyguard.simulate.simulation import simulate
from tests.simulate.recording import lines, policy, read, write

NO_B = """
rules: {no-b: {tools: [read], when: 'call.args.path == "/b"', message: no}}
"""
_TREES = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from([True, False, None]), st.integers(0, 99)),
    max_size=40,
)


def _strata(trees: Iterable[tuple[str, bool | None, int]]) -> Strata:
    found = Strata()
    for tree in trees:
        found.add(*tree)
    return found


@given(_TREES, st.randoms(use_true_random=False), st.integers(1, 4))
def test_strata_add_up_in_any_order(
    trees: list[tuple[str, bool | None, int]], order: random.Random, parts: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strata_module, "_MAX_AGENTS", 3)
        patch.setattr(strata_module, "MIN_DRAWN", 2)
        whole = _strata(trees)
        shuffled = order.sample(trees, len(trees))
        several = [_strata(shuffled[part::parts]) for part in range(parts)]
        merged = several[0]
        for other in several[1:]:
            merged.merge(other)
    assert [*merged.sizes()] == [*whole.sizes()]
    assert (merged.agents, merged.drawn_numbers()) == (whole.agents, whole.drawn_numbers())
    assert sum(size for _, size in whole.sizes()) == len(trees)
    assert len(whole.agents) == min(3, len({agent for agent, _, _ in trees}))


def _report(folder: Path, files: list[Path], sample: float, labels: Path | None = None) -> Figures:
    policies = (str(policy(folder / "p.yaml", NO_B)),)
    job = Job(policies=policies, files=tuple(files), labels=labels, sample=sample)
    return simulate(job, JobInputs.load(job), lambda *_: None)


def test_of_each_agent_and_outcome_some_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which are drawn depends on the names of files as they are given
    sessions = [
        lines(
            f"s{n}",
            [read("/b" if n % 50 < 2 else "/a")],
            success=n % 10 != 0,
            agent="rare" if n % 50 == 1 else "often",
        )
        for n in range(2000)
    ]
    figures = _report(tmp_path, [write(Path("t.jsonl"), *sessions)], 0.01)
    strata = {(one.agent, one.success): (one.sessions, one.drawn) for one in figures.traces.strata}
    assert {key: size for key, (size, _) in strata.items()} == {
        ("often", True): 1760,
        ("often", False): 200,
        ("rare", True): 40,
    }
    assert strata["rare", True][1] == strata["often", False][1] == MIN_DRAWN
    assert MIN_DRAWN < strata["often", True][1] < 40
    harm = figures.harm
    assert harm.refused == MIN_DRAWN, "all of the rare agent, and no other successful session"
    assert harm.rate == pytest.approx(40 / 1800), "weighted: not the share among those drawn"
    assert harm.ci95 is not None
    assert harm.ci95[0] < harm.rate < harm.ci95[1]
    assert figures.catch.rate == pytest.approx(40 / 200, abs=0.2)


def test_some_are_drawn_of_trees_with_a_file_for_each_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which are drawn depends on the names of files as they are given
    files = []
    for n in range(40):
        files += [
            write(Path(f"p{n}.jsonl"), lines(f"p{n}", [read("/a")], success=True, agent="x")),
            write(Path(f"c{n}.jsonl"), lines(f"c{n}", [read("/a")], parent=f"p{n}")),
        ]
    figures = _report(tmp_path, files, 0.01)
    assert figures.traces.strata == [StratumFigures("x", True, 40, MIN_DRAWN)]
    assert figures.traces.sessions == 2 * MIN_DRAWN


def test_the_census_and_the_replay_see_the_same_sessions(tmp_path: Path) -> None:
    files = [
        write(
            tmp_path / "mixed.jsonl",
            lines("a", [read("/a")], success=True, agent="x"),
            lines("open", [read("/b")], closed=False, agent="y"),
            lines("child", [read("/b")], parent="open", success=False),
            lines("orphan", [read("/b")], parent="gone", agent="x"),
            lines("a", [read("/b")], success=False, agent="x"),
        ),
        write(tmp_path / "parent.jsonl", lines("p", [read("/a")], success=True, agent="x")),
        write(tmp_path / "zchild.jsonl", lines("c", [read("/a")], success=False, parent="p")),
        write(tmp_path / "single.jsonl", lines("l", [read("/b")], success=True, agent="x")),
    ]
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        '{"session":"open","success":true}\n{"file":"single.jsonl","success":false}\n'
        '{"file":"mixed.jsonl","success":false}\n'
    )
    figures = _report(tmp_path, files, 1.0, labels)
    assert figures.traces.strata == [
        StratumFigures("x", True, 2, 2),
        StratumFigures("x", False, 2, 2),
        StratumFigures("x", None, 1, 1),
        StratumFigures("y", True, 1, 1),
    ]
    assert figures.traces.sessions == 8


def test_a_sub_agent_with_the_id_of_an_ended_session_is_drawn(tmp_path: Path) -> None:
    """It goes with its own parent, not with the session that had its id before."""
    sessions = [
        lines("s", [read("/a")], success=True, agent="x"),
        lines("s", [read("/a")], success=True, agent="x", parent="elsewhere"),
    ]
    figures = _report(tmp_path, [write(tmp_path / "t.jsonl", *sessions)], 1e-9)
    assert figures.traces.strata == [StratumFigures("x", True, 2, 2)]


def test_a_sample_of_all_says_what_all_say(tmp_path: Path) -> None:
    sessions = [
        lines(f"s{n}", [read("/b" if n % 3 else "/a")], success=n % 2 == 0) for n in range(40)
    ]
    figures = _report(tmp_path, [write(tmp_path / "t.jsonl", *sessions)], 1.0)
    assert figures.harm.rate == pytest.approx(share(figures.harm.refused, 20).rate)
    assert figures.harm.ci95 == pytest.approx(wilson_interval(figures.harm.refused, 20))


# How often an interval covers the truth. The draws are those of the program, by hashes.

_STRATA = {"often": (900, 0.02), "some": (120, 0.3), "rare": (12, 0.5), "failed": (60, 0.0)}
_SHARE = 0.05
_DRAWS = 400


def _draw(name: str, hits: dict[str, list[bool]]) -> list[StratumSample]:
    number = SessionNumbers()
    number.begin(name)
    events = {
        agent: [SessionStarted(f"{agent}{n}", agent=agent) for n in range(len(found))]
        for agent, found in hits.items()
    }
    strata = _strata((agent, None, number(one)) for agent, all_ in events.items() for one in all_)
    sample = SessionSample(_SHARE, Draw(numbers=strata.drawn_numbers()))
    sample.begin(name)
    found = []
    for agent, all_ in events.items():
        drawn = [hit for hit, one in zip(hits[agent], all_, strict=True) if sample(one)]
        found.append(StratumSample(len(all_), len(drawn), sum(drawn), len(drawn), len(drawn)))
    return found


def _covers(interval: tuple[float, float], truth: float) -> bool:
    return interval[0] <= truth <= interval[1]


@pytest.mark.slow
def test_intervals_cover_the_share_of_all_sessions() -> None:
    order = random.Random(1)  # noqa: S311 - a fixed one
    hits = {
        agent: [n < round(size * rate) for n in range(size)]
        for agent, (size, rate) in _STRATA.items()
    }
    truth = sum(map(sum, hits.values())) / sum(map(len, hits.values()))
    covered = pooled = 0
    mean = 0.0
    for number in range(_DRAWS):
        for one in hits.values():
            order.shuffle(one)
        strata = _draw(f"{number}", hits)
        rate, interval = estimate_share(strata) or (0.0, (0.0, 0.0))
        mean += rate / _DRAWS
        covered += _covers(interval, truth)
        drawn = sum(one.drawn for one in strata)
        pooled += _covers(wilson_interval(sum(one.hits for one in strata), drawn), truth)
    assert mean == pytest.approx(truth, rel=0.1), "without bias"
    assert covered >= 0.94 * _DRAWS
    assert pooled < 0.8 * _DRAWS, "as if it were not stratified: what is rare counts too much"


@pytest.mark.slow
def test_intervals_cover_the_share_of_such_sessions() -> None:
    order = random.Random(2)  # noqa: S311 - a fixed one
    sizes = {agent: size for agent, (size, _) in _STRATA.items()}
    truth = sum(size * rate for size, rate in _STRATA.values()) / sum(sizes.values())
    covered = 0
    for number in range(_DRAWS):
        hits = {
            agent: [order.random() < rate for _ in range(size)]
            for agent, (size, rate) in _STRATA.items()
        }
        found = estimate_share(_draw(f"{number}", hits))
        covered += found is not None and _covers(found[1], truth)
    assert covered >= 0.94 * _DRAWS


def test_sub_agents_do_not_make_a_sample_more_certain() -> None:
    alone = estimate_share([StratumSample(1000, 20, 5, 20, 20)])
    in_trees = estimate_share([StratumSample(1000, 20, 50, 200, 20 * 10**2)])
    assert alone == in_trees
    one_large = estimate_share([StratumSample(1000, 20, 50, 200, 19 + 181**2)])
    assert one_large is not None
    assert in_trees is not None
    assert one_large[1][1] > in_trees[1][1]


def test_a_stratum_without_hits_leaves_room_for_some() -> None:
    found = estimate_share([StratumSample(10_000, 30, 0, 30, 30), StratumSample(10, 10, 5, 10, 10)])
    assert found is not None
    assert found[1][1] > 0.08, "its variance is 0, but it may well have 8 %"


def test_many_small_strata_are_no_less_certain_than_they_are() -> None:
    order = random.Random(3)  # noqa: S311 - a fixed one
    covered = 0
    for _ in range(_DRAWS):
        hits = [sum(order.random() < 0.05 for _ in range(10)) for _ in range(20)]
        found = estimate_share([StratumSample(200, 10, one, 10, 10) for one in hits])
        covered += found is not None and _covers(found[1], 0.05)
    assert covered >= 0.94 * _DRAWS


def test_no_trial_is_no_share() -> None:
    assert estimate_share([StratumSample(10, 10, 0, 0, 0)]) is None
