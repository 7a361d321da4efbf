"""The cost that each part of `core` adds to a check and a record.

    python -m benchmarks.sections [--quick]

The same calls under an empty policy, under parts of `core`, and under `core` without one limit.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from pathlib import Path

from benchmarks.floor import Floor
from benchmarks.measure import Block, Report, interleave, table
from benchmarks.timing import TimedBlocks, time_floor, time_session
from benchmarks.workload import call
from policyguard import Guard

SIZE = 100
FLOOR, EMPTY, CORE = "floor", "an empty policy", "core"
_LIMITS = ("repeat", "cycle", "failures", "refusals")
_PARTS = ("classes", "limits", "learning")


def policies() -> dict[str, str]:
    """Return policy texts by name."""
    parts = Path(__file__).resolve().parents[1] / "policies" / "core"
    texts = {EMPTY: ""}
    for part in _PARTS:
        texts[f"{part} alone"] = f"extends: [{parts / part}.yaml]"
    without = ", ".join(f"{limit}: none" for limit in _LIMITS)
    texts["core without limits"] = f"extends: [core]\nlimits: {{default: {{{without}}}}}"
    for limit in _LIMITS:
        text = f"extends: [core]\nlimits: {{default: {{{limit}: none}}}}"
        texts[f"core without {limit}"] = text
    texts[CORE] = "extends: [core]"
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args()
    rounds = 60 if options.quick else 200
    blocks: dict[str, Block] = {
        FLOOR: TimedBlocks(time_floor(Floor()), lambda number: call(number, 2), SIZE)
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        for name, text in policies().items():
            file.write_text(f"policyguard: 1\nname: sections\n{text}\n", "utf-8")
            session = Guard.load(file).session("s")
            blocks[name] = TimedBlocks(time_session(session), lambda number: call(number, 2), SIZE)
    gc.collect()
    gc.freeze()
    results = interleave(blocks, rounds)
    rows = []
    for name in blocks:
        figures = [results.spread(name, figure) for figure in ("check", "record", "pair")]
        rows.append([name, *figures, results.ratio(name, CORE, "pair")])
    report = Report("sections", "What the parts of core cost")
    report.add(f"Medians over {rounds} blocks of {SIZE} calls, quartiles in brackets.")
    report.add(table(["policy", "check µs", "record µs", "both µs", "both ÷ core"], rows))
    report.spreads(results)
    report.write()


if __name__ == "__main__":
    main()
