"""Startup time of processes that import, load, check once, or lint.

    python -m benchmarks.start [--quick]

Each process runs in a separate environment with policyguard and its dependencies as installed,
bytecode included. Processes take turns, bare `python -c pass` among them. The result is processor
time beyond bare Python's: until the first decision, which a caller waits for, and of the whole
process, with recording the outcome and Python's own end. *Cached* policies come from the cache of
compiled policies, *uncached* ones are compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.measure import (
    Block,
    Figures,
    Measurements,
    Report,
    Spread,
    interleave,
    number,
    table,
)

ROOT = Path(__file__).resolve().parents[1]
LINES = 500
CHECK = """
from policyguard import Guard
import time
session = Guard.load({policy!r}, store={store!r}, cache=True).session("s")
start = time.process_time()
decision = session.check("bash", {{"command": "ls -la"}})
decided = time.process_time()
print([decided * 1e3, (decided - start) * 1e6])
session.record(decision, result="total 0")
"""
LINT = "from policyguard.cli import main; main(['lint', {policy!r}])"
NO_CACHE = {"POLICYGUARD_CACHE": "off"}
TARGETS = {
    "check, core, cached": 80,
    "check, core, cached, with a store": 80,
    "lint, cached": 150,
    "lint, uncached": 500,
}
"""Milliseconds beyond bare Python: of a check until it is decided, of linting in all."""


def policy(lines: int) -> str:
    """Return a policy of `lines` lines, mostly rules with conditions, messages and examples."""
    lines_made = [
        "policyguard: 1",
        "name: five-hundred-lines",
        "description: as long as a policy becomes",
        "extends: [core]",
        "params:",
        "  limit: {default: 40, env: POLICYGUARD_BENCH_LIMIT}",
        "lists:",
        "  approved: [alpha, beta, gamma]",
        "budgets:",
        "  calls-per-turn: {calls: 150, per: turn, advise_at: 120}",
        "limits:",
        "  tools:",
        "    web_search: {repeat: {max: 2, window: 5, same: call}}",
        "rules:",
    ]
    number = 0
    while len(lines_made) < lines - 10:
        number += 1
        lines_made += [
            f"  rule-{number}:",
            f"    owner: area-{number}@example.com",
            "    tools: [deploy, release_*]",
            "    when: >-",
            f"      call.args.area == 'area-{number}' && !(call.args.stage in lists.approved)",
            f"      || call.args.size > params.limit + {number} && call.args.note == '{number}!'",
            f"    message: area {number} is not open",
            "    examples:",
            f"      match: [deploy: {{area: area-{number}, stage: omega, size: 1, note: ''}}]",
            f"      no_match: [deploy: {{area: area-{number}, stage: beta, size: 1, note: ''}}]",
        ]
    lines_made += ["# end"] * (lines - len(lines_made))
    return "\n".join(lines_made) + "\n"


class Environment:
    """A virtual environment with policyguard and its dependencies, and a home folder."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.python = str(folder / "venv" / "bin" / "python")
        site = next((folder / "venv").glob("lib/python*/site-packages"))
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not entry.name.endswith(".pth") and not entry.name.startswith("__editable__"):
                (site / entry.name).symlink_to(entry)
        package = site / "policyguard"
        package.mkdir()
        for entry in (ROOT / "policyguard").iterdir():
            (package / entry.name).symlink_to(entry)
        for mapped in ("policies", "schemas"):
            (package / mapped).symlink_to(ROOT / mapped)
        self._folder = folder
        self._variables = {
            "HOME": str(folder),
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }

    def run(self, code: str, variables: Mapping[str, str]) -> Figures:
        """Run a process; return its processor and wall-clock time in milliseconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run(
            [self.python, "-c", code],
            cwd=self._folder,
            env={**self._variables, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(f"{code}\n{done.stdout}{done.stderr}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        figures = {"cpu": cpu * 1e3, "wall": wall * 1e3}
        if done.stdout.startswith("["):
            figures["decided"], figures["first check, µs"] = json.loads(done.stdout)
        return figures


def contenders(folder: Path) -> dict[str, Block]:
    """Return the processes to measure, by name."""
    environment = Environment(folder)
    long = folder / "policy.yaml"
    long.write_text(policy(LINES), "utf-8")
    core = CHECK.format(policy="core", store=None)
    with_store = CHECK.format(policy="core", store=str(folder / "state" / "store.db"))
    long_policy = CHECK.format(policy=str(long), store=None)
    lint = LINT.format(policy=str(long))
    processes: dict[str, tuple[str, Mapping[str, str]]] = {
        "bare Python": ("pass", {}),
        "import policyguard": ("import policyguard", {}),
        "import Guard": ("from policyguard import Guard", {}),
        "check, core, cached": (core, {}),
        "check, core, cached, with a store": (with_store, {}),
        "check, core, uncached": (core, NO_CACHE),
        "check, 500 lines, cached": (long_policy, {}),
        "check, 500 lines, uncached": (long_policy, NO_CACHE),
        "lint, cached": (lint, {}),
        "lint, uncached": (lint, NO_CACHE),
    }

    def block(code: str, variables: Mapping[str, str]) -> Block:
        return lambda turn: environment.run(code, variables)

    return {name: block(*process) for name, process in processes.items()}


def over_bare(results: Measurements, name: str, figure: str, bare: str) -> Spread:
    """Return milliseconds beyond a figure of bare Python's, turn by turn."""
    pairs = zip(results.blocks[name], results.blocks["bare Python"], strict=True)
    return Spread.of(one[figure] - other[bare] for one, other in pairs)


def format_rows(results: Measurements) -> Iterator[list[object]]:
    for name in results.blocks:
        first = results.spread(name, "first check, µs")
        is_bare = name == "bare Python"
        yield [
            name,
            over_bare(results, name, "decided", "cpu") if first.count else "",
            results.spread(name, "cpu") if is_bare else over_bare(results, name, "cpu", "cpu"),
            results.ratio(name, "bare Python", "cpu"),
            results.spread(name, "wall") if is_bare else over_bare(results, name, "wall", "wall"),
            TARGETS.get(name, ""),
            number(first.median) if first.count else "",
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 5 if parser.parse_args().quick else 25
    report = Report("start", "Start")
    with tempfile.TemporaryDirectory() as folder:
        results = interleave(contenders(Path(folder)), rounds, warm=1)
    report.add(
        f"Medians (quartiles) over {rounds} processes each, ms over bare Python's own start (of "
        f"bare Python: in all). The policy that is linted has {LINES} lines over `core`."
    )
    heads = "process|until decided|processor time|÷ bare Python|wall clock|target|first check, µs"
    report.add(table(heads.split("|"), format_rows(results)))
    report.spreads(results)
    report.figures["over bare Python, ms"] = {
        name: over_bare(results, name, "cpu", "cpu").median for name in results.blocks
    }
    report.write()


if __name__ == "__main__":
    main()
