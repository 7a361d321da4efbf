"""Benchmark tools: spreads, slopes, turns and distinct calls."""

from __future__ import annotations

import math
import sys
from itertools import pairwise

import pytest

from benchmarks.floor import Floor
from benchmarks.growth import slope
from benchmarks.measure import Figures, Measurements, Spread, interleave, process_memory, table
from benchmarks.rules import policy, rules
from benchmarks.timing import TimedBlocks, time_floor, time_session
from benchmarks.workload import Call, call, mixed_call, name, repeated_failure
from policyguard import Guard


def test_spread_is_median_with_quartiles() -> None:
    spread = Spread.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (spread.low, spread.median, spread.high, spread.count) == (2.0, 3.0, 4.0, 5)
    assert str(spread) == "3.00 (2.00–4.00)"
    assert str(Spread.of([])) == "–"


def test_ratio_compares_blocks_of_the_same_turn() -> None:
    """A slow turn slows both contenders and leaves the ratio unchanged."""
    blocks: dict[str, list[Figures]] = {
        "a": [{"check": 2.0}, {"check": 20.0}],
        "b": [{"check": 1.0}, {"check": 10.0}],
    }
    assert Measurements(blocks).ratio("a", "b", "check") == Spread(2.0, 2.0, 2.0, 2)


def test_contenders_run_equally_often_in_varying_order() -> None:
    order: list[str] = []

    def contender(one: str) -> Figures:
        order.append(one)
        return {"check": 1.0}

    contenders = {one: (lambda turn, one=one: contender(one)) for one in "abc"}
    results = interleave(contenders, 20, warm=2)
    assert {len(blocks) for blocks in results.blocks.values()} == {20}
    assert len({"".join(order[at : at + 3]) for at in range(0, len(order), 3)}) > 1


def test_slope_of_flat_linear_and_superlinear_growth() -> None:
    sizes = (10, 100, 1000)
    assert slope(sizes, [5.0, 5.0, 5.0]) == pytest.approx(0)
    assert slope(sizes, [1.0, 10.0, 100.0]) == pytest.approx(1)
    assert slope(sizes, [size * math.log(size) for size in sizes]) > 1.1


def test_every_call_and_error_is_distinct() -> None:
    calls = [call(number, 100) for number in range(3000)]
    assert len({str(one.args) for one in calls}) == len({one.error for one in calls}) == 3000
    assert not any(letter.isdigit() for letter in name(123456))


@pytest.mark.parametrize("failing", [0, 2, 100])
def test_requested_share_of_calls_fails(failing: int) -> None:
    assert sum(call(number, failing).error is not None for number in range(1000)) == 10 * failing


@pytest.mark.parametrize(
    ("make_call", "share"), [(call, 1.0), (mixed_call, 1.0), (repeated_failure, 0.5)]
)
def test_core_admits_varied_calls_and_refuses_repeated_failures(make_call, share) -> None:
    blocks = TimedBlocks(
        time_session(Guard.load("core").session("s")), lambda number: make_call(number, 2), 500
    )
    blocks(0)
    assert blocks(1)["admitted"] == share


def test_floor_bans_a_call_that_failed_twice() -> None:
    failing = Call("search", {"query": "q"}, "", "user not found")
    timed = time_floor(Floor())
    assert [timed(failing)[2] is not None for _ in range(3)] == [True, True, False]


def test_floor_chains_its_lines() -> None:
    lines: list[bytes] = []
    floor = Floor(lines.append)
    for _ in range(2):
        floor.record(floor.check("search", {}), None)
    assert len(lines) == 4
    for previous, line in pairwise(lines):
        digest = previous.rstrip()[-66:-2]
        assert b'"prev":"%s"' % digest in line


def test_each_rule_blocks_its_argument_and_no_workload_call(tmp_path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(policy(15, core=False))
    session = Guard.load(file).session("s")
    assert all(session.check(*call(number)[:2]).allowed for number in range(200))
    for rule in rules(15):
        args = {"query": "", "limit": 0, "page": 0}
        args[rule.argument] = rule.value + 1 if isinstance(rule.value, int) else rule.value
        decision = session.check("search", args)
        assert f"rules/{rule.id}" in {one.id for one in decision.violations}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_peak_memory_is_at_least_current_memory() -> None:
    assert 0 < process_memory("VmRSS") <= process_memory("VmHWM") + 1024


def test_table_is_markdown() -> None:
    assert table(["a", "b"], [[1, 2]]) == "| a | b |\n|---|---|\n| 1 | 2 |"
