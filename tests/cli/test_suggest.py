"""`policyguard suggest`, as a person or a program would use it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from policyguard.compiler import compile_policy
from policyguard.lint import lint_paths
from tests.simulate.recording import failed, lines, policy, read, write
from tests.terminal import run_at_terminal

TRACES = Path(os.environ.get("POLICYGUARD_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
ONE_LIMIT = "limits: {default: {repeat: {max: 4, window: all, same: call}}}"
LEARNING = f"learn: {{ban: call}}\n{ONE_LIMIT}"
"""Something in it depends on signatures."""


def _run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["suggest", *map(str, args)], catch_exceptions=False)


def _record(file: Path, succeeded: int, runs_failed: int) -> Path:
    """Write runs that succeed with two same calls, and some that fail with four."""
    others = [read(f"/{n}") for n in range(6)]
    good = [
        lines(f"g{n}", [read("/x"), *others, read("/x")], success=True) for n in range(succeeded)
    ]
    bad = [
        lines(
            f"b{n}", [*[read("/x")] * 4, failed("db", "quux is frobbed today", q=n)], success=False
        )
        for n in range(runs_failed)
    ]
    return write(file, *good, *bad)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A hundred runs that succeed, and twenty that fail."""
    return _record(tmp_path / "trace.jsonl", 100, 20)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """As many runs as a guarantee of 20 % takes; `core` has many settings to try on each."""
    return _record(tmp_path / "trace.jsonl", 24, 6)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return policy(tmp_path / "base.yaml", ONE_LIMIT)


def test_the_report_states_the_proposal_and_its_guarantee(trace: Path, base: Path) -> None:
    result = _run(trace, "--policy", base, "--max-harm", "0.05")
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "limits/default/repeat max 3 (was 4)" in text
    assert (
        "guaranteed: with probability at least 90 % over the draw of runs like these, at most 5 % "
        "of successful runs would have a call refused"
    ) in text
    assert "harm against catch" in text
    assert "repeat: {max: 3, window: all, same: call}" in text
    assert "quux_frobbed_today" in text


def test_the_report_fits_the_terminal(trace: Path, base: Path) -> None:
    args = ["suggest", str(trace), "--policy", str(base), "--max-harm", "0.05"]
    _, shown = run_at_terminal(*args, columns=80, NO_COLOR="1")
    _, _, report = shown.partition("proposed\n")
    report, _, rest = report.partition("overrides, as a layer")
    widths = [len(line) for line in report.splitlines()]
    assert 60 < max(widths) <= 80
    assert "repeat: {max: 3, window: all, same: call}" in rest
    assert "next  write the layer with `-o tuned.yaml`" in shown


def test_the_policy_here_is_the_one_that_is_meant(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    policy(tmp_path / "policyguard.yaml", ONE_LIMIT)
    options = (few, "--max-harm", "0.2", "--format", "yaml")
    here = _run(*options)
    assert here.exit_code == 0, here.stderr
    assert here.stdout == _run(*options, "--policy", "policyguard.yaml").stdout
    (tmp_path / "policyguard.yaml").unlink()
    assert _run(*options).stdout != here.stdout


def test_a_guarantee_can_be_asked_for_at_another_confidence(trace: Path, base: Path) -> None:
    options = ("--policy", base, "--max-harm", "0.075")
    result = _run(trace, *options, "--delta", "0.05")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "with probability at least 95 % over the draw of runs like these, at most 7.5 %" in text


def test_too_few_runs_exit_with_1_and_the_number_needed(trace: Path, base: Path) -> None:
    result = _run(trace, "--policy", base, "--max-harm", "0.01")
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "no guarantee: at most 1 % with a confidence of 90 %" in text
    assert "takes at least 230 held-out successful runs" in text
    assert "0 of 50 held-out successful runs had a call refused" in text
    assert "guaranteed:" not in text


def test_what_is_written_loads_lints_clean_and_does_it(trace: Path, tmp_path: Path) -> None:
    base = policy(tmp_path / "base.yaml", LEARNING)
    (tmp_path / "out").mkdir()
    overrides, signatures = tmp_path / "out" / "o.yaml", tmp_path / "out" / "s.yaml"
    result = _run(
        trace, "--policy", base, "--max-harm", "0.05",
        "-o", overrides, "--signatures", signatures,
    )  # fmt: skip
    assert result.exit_code == 0
    assert lint_paths([overrides]).diagnostics == []
    assert lint_paths([signatures]).diagnostics == []
    made = compile_policy([overrides]).policy
    assert made.name == "base-suggested"
    limit = made.limits["default"].repeat
    assert limit is not None
    assert not isinstance(limit, str)
    assert limit.max == 3
    assert "# guaranteed: with probability at least 90 %" in overrides.read_text()
    assert compile_policy([signatures]).policy.signatures[0].id == "quux_frobbed_today"


def test_yaml_is_nothing_but_the_layer(trace: Path, base: Path, tmp_path: Path) -> None:
    result = _run(trace, "--policy", base, "--max-harm", "0.05", "--format", "yaml")
    file = tmp_path / "o.yaml"
    file.write_text(result.stdout)
    limit = compile_policy([file]).policy.limits["default"].repeat
    assert limit is not None
    assert not isinstance(limit, str)
    assert limit.max == 3


def test_json_has_all_of_it(trace: Path, base: Path) -> None:
    result = _run(trace, "--policy", base, "--max-harm", "0.05", "--format", "json")
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["guaranteed"] is True
    assert (report["max_harm"], report["confidence"], report["needed"]) == (0.05, 0.9, 45)
    assert report["held_out"] == {"succeeded": 50, "failed": 10}
    (chosen,) = [one for one in report["candidates"] if one["chosen"]]
    assert chosen["held_out"]["catch"]["count"] == 10
    assert report["curve"][0]["harm"]["count"] == 0
    assert {point["entry"] for point in report["sweep"]} >= {"limits/default/repeat"}
    assert report["signatures"][0]["examples"] == ["quux is frobbed today"]


def test_labels_override_recorded_outcomes(trace: Path, base: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(f'{{"session": "b{n}", "success": true}}\n' for n in range(20)))
    result = _run(
        trace, "--policy", base, "--labels", labels, "--max-harm", "0.05", "--format", "json"
    )
    report = json.loads(result.stdout)
    assert report["held_out"] == {"succeeded": 60, "failed": 0}
    assert result.exit_code == 0  # the policy as it stands


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-harm", "1"], "--max-harm"),
        (["--max-harm", "0"], "--max-harm"),
        ([], "--max-harm"),
        (["--max-harm", "0.1", "--delta", "0"], "--delta"),
        (["--max-harm", "0.1", "--labels", "nowhere.jsonl"], "nowhere.jsonl: cannot be read"),
        (["--max-harm", "0.1", "-o", "nowhere/x.yaml"], "folder `nowhere` does not exist"),
        (["--max-harm", "0.1", "--policy", "./nowhere.yaml"], "no file `nowhere.yaml`"),
        (["--max-harm", "0.1", "--policy", "coer"], "did you mean `core`?"),
        (["--max-harm", "0.1", "-o", "x.yaml", "--signatures", "x.yaml"], "different files"),
    ],
)
def test_misuse_ends_with_2(trace: Path, options: list[str], says: str) -> None:
    result = _run(trace, *options)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


def test_runs_without_outcomes_exit_with_2(tmp_path: Path) -> None:
    unknown = write(tmp_path / "u.jsonl", lines("s", [read("/a")]))
    result = _run(unknown, "--max-harm", "0.1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pass the outcomes with --labels" in result.stderr
    only_failed = write(tmp_path / "f.jsonl", lines("s", [read("/a")], success=False))
    assert (
        "none of 1 sessions succeeded; at least 2 are needed"
        in _run(only_failed, "--max-harm", "0.1").stderr
    )
    (tmp_path / "no.txt").write_text("hello")
    assert "no trace among the files" in _run(tmp_path / "no.txt", "--max-harm", "0.1").stderr
    assert _run(tmp_path / "nowhere", "--max-harm", "0.1").exit_code == 2


def test_the_output_may_not_be_one_of_the_traces(trace: Path) -> None:
    before = trace.read_bytes()
    result = _run(trace, "--max-harm", "0.1", "-o", trace)
    assert result.exit_code == 2
    assert "is also an input" in result.stderr
    assert trace.read_bytes() == before


HOSTILE = "quux \x1b[2J wrong ``` </details><script> [x](http://evil.example) @all here"


@pytest.mark.parametrize("form", ["text", "yaml", "markdown", "json"])
def test_hostile_text_is_harmless_in_every_format(tmp_path: Path, form: str) -> None:
    tool = "\x1b[31m\nrules: {evil: {}}\n# "
    calls = [failed(tool, HOSTILE, q=n) for n in range(3)]
    good = [lines(f"\x1b[1mg{n}", [read("/a")], success=True) for n in range(4)]
    trace = write(tmp_path / "t.jsonl", lines("s", calls, success=False), *good)
    layer = tmp_path / "s.yaml"
    base = policy(tmp_path / "base.yaml", LEARNING)
    result = _run(
        trace, "--policy", base, "--max-harm", "0.4", "--format", form, "--signatures", layer
    )
    assert result.exit_code in (0, 1)
    assert "\x1b" not in result.stdout
    assert lint_paths([layer]).diagnostics == []
    assert not compile_policy([layer]).policy.rules
    if form == "markdown":
        outside = "".join(result.stdout.split("````")[::2])
        assert "<script>" not in outside
        assert "quux" not in outside


def test_what_reaches_beyond_a_session_is_named(trace: Path, tmp_path: Path) -> None:
    shared = policy(tmp_path / "s.yaml", "budgets: {all: {calls: 9000, per: global}}")
    result = _run(trace, "--policy", shared, "--max-harm", "0.05")
    text = " ".join(result.stdout.split())
    assert "budgets/all span sessions" in text
    assert "the guarantee does not hold strictly" in text


@pytest.mark.slow
def test_real_recordings_give_no_false_guarantee(tmp_path: Path) -> None:
    if not TRACES.is_dir():
        pytest.skip("no recorded traces: set POLICYGUARD_TRACES")
    options = (TRACES / "tau2", "--labels", TRACES / "labels.jsonl")
    output = tmp_path / "o.yaml"
    result = _run(*options, "--max-harm", "0.1", "--format", "json", "-o", output)
    report = json.loads(result.stdout)
    assert report["held_out"]["succeeded"] + report["explored"]["succeeded"] == 30
    assert report["held_out"]["failed"] + report["explored"]["failed"] == 20
    assert report["held_out"]["succeeded"] == report["needed"] == 22
    assert report["guaranteed"] is (result.exit_code == 0)
    assert report["guaranteed"] is any(one["certified"] for one in report["candidates"])
    assert lint_paths([output]).diagnostics == []
    few = json.loads(_run(*options, "--max-harm", "0.01", "--format", "json").stdout)
    assert (few["guaranteed"], few["needed"]) == (False, 230)
