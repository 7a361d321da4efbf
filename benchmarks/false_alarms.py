"""False alarms: labelled successful runs in which a policy would have refused a call.

    python -m benchmarks.false_alarms [--traces TRACES] [POLICY ...]

With one policy (by default `core`) prints a row per set, which is a folder directly below TRACES
(POLICYGUARD_TRACES, ../shared/traces); with several a row per policy, over all sets. Labels come
from `labels.jsonl` there. Prints a Markdown table for docs/false-alarms.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from policyguard.compiler import compile_policy
from policyguard.report.replay.figures import Figures
from policyguard.simulate import Labels, Replay
from policyguard.traces import Reader, TraceError, expand

DEFAULT = os.environ.get("POLICYGUARD_TRACES", "../shared/traces")
REFUSALS = ("ask", "block", "halt")
BY_SET = ["set", "calls", "sessions", "succeeded", "refused", "95 % interval", "failed", "refused"]
BY_POLICY = [
    "policy",
    "succeeded",
    "refused",
    "95 % interval",
    "by",
    "advised",
    "failed",
    "refused",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policies", nargs="*", default=["core"], metavar="POLICY")
    parser.add_argument("--traces", default=DEFAULT, type=Path)
    options = parser.parse_args()
    folders = sorted(path for path in options.traces.iterdir() if path.is_dir())
    labels = options.traces / "labels.jsonl"
    if len(options.policies) == 1:
        (policy,) = options.policies
        sets = ((folder.name, measure_policy(policy, [folder], labels)) for folder in folders)
        table(BY_SET, (row for name, figures in sets for row in set_row(name, figures)))
    else:
        measured = ((name, measure_policy(name, folders, labels)) for name in options.policies)
        table(BY_POLICY, (policy_row(name, figures) for name, figures in measured))


def measure_policy(policy: str, folders: Iterable[Path], labels: Path) -> Figures:
    """Replay the runs in some folders under a policy; skip a folder without any."""
    replay = Replay(compile_policy(policy), observe=True, labels=Labels.read(labels))
    reader = Reader()
    for folder in folders:
        try:
            for file in expand([folder]):
                for trace in reader.iter_files(file):
                    replay.add(trace)
        except TraceError:
            continue
    return replay.finish()


def set_row(name: str, figures: Figures) -> Iterator[Iterable[object]]:
    """Yield the row of a set; none if it has no call."""
    harm, catch, traces = figures.harm, figures.catch, figures.traces
    if traces.calls:
        successful_runs = (harm.succeeded, harm.refused, interval(figures))
        yield name, traces.calls, traces.sessions, *successful_runs, catch.failed, catch.refused


def policy_row(name: str, figures: Figures) -> Iterable[object]:
    """Return the row of a policy, with the entries that refuse successful runs."""
    harm, catch = figures.harm, figures.catch
    fired = [rule for rule in figures.rules if rule.succeeded and rule.effect in REFUSALS]
    ids = ", ".join(f"`{rule.id}` {rule.succeeded}" for rule in fired) or "–"
    advised = sum(1 for run in figures.sessions if run.success and run.advised)
    failed_runs = (catch.failed, catch.refused)
    return name, harm.succeeded, harm.refused, interval(figures), ids, advised, *failed_runs


def interval(figures: Figures) -> str:
    """Return the 95 % interval of the share of refused successful runs."""
    ends = figures.harm.ci95
    return f"{ends[0]:.1%} – {ends[1]:.1%}" if ends else "–"


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a Markdown table."""
    columns = list(heads)
    print(f"| {' | '.join(columns)} |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |", flush=True)


if __name__ == "__main__":
    main()
