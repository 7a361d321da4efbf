"""The false alarms in the packs' READMEs match the recorded runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from benchmarks.false_alarms import measure_policy
from policyguard.simulate.sample.proportions import wilson_interval
from tests.examples import slow_but

ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("POLICYGUARD_TRACES", ROOT / ".." / "shared" / "traces"))
PACKS = sorted(file.parent.name for file in (ROOT / "policies" / "packs").glob("*/README.md"))
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason=f"no recorded traces at {TRACES} (POLICYGUARD_TRACES names them)"
)
FOLDERS = (
    sorted(folder for folder in TRACES.iterdir() if folder.is_dir()) if TRACES.is_dir() else []
)


@pytest.mark.parametrize("pack", slow_but(("customer-support",), PACKS))
def test_readme_figures(pack: str) -> None:
    folder = ROOT / "policies" / "packs" / pack
    if ".sql(" in (folder / "policy.yaml").read_text("utf-8"):
        pytest.importorskip("sqlglot")
    text = (folder / "README.md").read_text("utf-8")
    # `False alarms (tau2, intercode):` names the sets that fit; without names it is all of them.
    begun = re.search(r"False alarms(?: \(([\w, \n]+)\))?:", text)
    assert begun
    alarms = " ".join(text[begun.end() :].split())
    named = re.findall(r"\w+", begun[1] or "")
    folders = [TRACES / name for name in named] or FOLDERS
    assert all(folder in FOLDERS for folder in folders)
    figures = measure_policy(pack, folders, TRACES / "labels.jsonl")
    harm, catch = figures.harm, figures.catch
    if harm.refused:
        assert f"it refuses calls in {harm.refused} of {harm.succeeded} successful" in alarms
        low, high = wilson_interval(harm.refused, harm.succeeded)
        assert f"(95 %: {low * 100:.1f} – {high * 100:.1f} %)" in alarms
    else:
        assert re.search(rf"none in {harm.succeeded} successful|refuses nothing", alarms)
    if caught := re.search(r"in (\d+) of (\d+) failed", alarms):
        assert (int(caught[1]), int(caught[2])) == (catch.refused, catch.failed)
    if noted := re.search(r"advises in (\d+) of (\d+) .*?\(95 %: (\d+) – (\d+) %\)", alarms):
        counts = (sum(1 for run in figures.sessions if run.success and run.advised), harm.succeeded)
        assert (int(noted[1]), int(noted[2])) == counts
        assert (int(noted[3]), int(noted[4])) == tuple(
            round(100 * end) for end in wilson_interval(*counts)
        )
