"""How many successful runs a policy would have refused a call in, per set of recorded runs.

    python benchmarks/false_alarms.py [--policy core] [TRACES]

A set is a folder directly below TRACES (POLICYGUARD_TRACES, ../shared/traces), with the labels of
`labels.jsonl` there. Prints a Markdown table for docs/false-alarms.md.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from policyguard.compiler import compile_policy
from policyguard.simulate import Labels, Replay
from policyguard.traces import Reader, TraceError, expand

DEFAULT = os.environ.get("POLICYGUARD_TRACES", "../shared/traces")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="?", default=DEFAULT, type=Path)
    parser.add_argument("--policy", default="core")
    options = parser.parse_args()
    compiled = compile_policy(options.policy)
    print("| set | calls | sessions | succeeded | refused | 95 % interval | failed | refused |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in sorted(path for path in options.traces.iterdir() if path.is_dir()):
        labels = Labels.read(options.traces / "labels.jsonl")
        replay = Replay(compiled, observe=True, labels=labels)
        reader = Reader()
        try:
            for file in expand([folder]):
                for trace in reader.files(file):
                    replay.add(trace)
        except TraceError:
            continue
        figures = replay.finish()
        if not figures.traces.calls:
            continue
        harm, catch = figures.harm, figures.catch
        interval = f"{harm.ci95[0]:.1%} – {harm.ci95[1]:.1%}" if harm.ci95 else "–"
        print(
            f"| {folder.name} | {figures.traces.calls} | {figures.traces.sessions} | "
            f"{harm.succeeded} | {harm.refused} | {interval} | {catch.failed} | {catch.refused} |"
        )


if __name__ == "__main__":
    main()
