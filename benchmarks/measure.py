"""Measurement and reports: blocks in turn, medians with quartiles, JSON and Markdown.

Contenders take turns in small blocks, so that other load on the machine affects all alike. A
block's figure is the mean of its calls; an interrupted block is measured again. Reports show the
median over blocks with its quartiles, and ratios block by block. On a busy machine trust the
ratios.

Only the standard library is used: peers measure the same way in their own environments.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
MAX_LOAD_PER_CORE = 1.0
"""Load per core, over the last minute, above which a run counts as under load."""
MAX_TRIES = 5
"""Attempts to measure a block without an interruption."""

Figures = Mapping[str, float]
"""The figures of one block by name; microseconds per call unless the name says otherwise."""
Block = Callable[[int], Figures]
"""Runs the calls of one block; the number counts earlier blocks."""


@dataclass(frozen=True)
class Spread:
    """A median, its quartiles, and the number of values."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        numbers = list(values)
        if len(numbers) < 2:
            single = numbers[0] if numbers else float("nan")
            return cls(single, single, single, len(numbers))
        low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
        return cls(middle, low, high, len(numbers))

    def __str__(self) -> str:
        if self.count == 0:
            return "–"
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


@dataclass
class Measurements:
    """The figures of each contender's blocks, in turn."""

    blocks: dict[str, list[Figures]]

    def spread(self, contender: str, figure: str) -> Spread:
        return Spread.of(one[figure] for one in self.blocks[contender] if figure in one)

    def ratio(self, contender: str, other: str, figure: str) -> Spread:
        """Return the ratio to another contender, block by block of the same turn."""
        pairs = zip(self.blocks[contender], self.blocks[other], strict=True)
        return Spread.of(
            one[figure] / two[figure] for one, two in pairs if figure in one and two.get(figure)
        )


def interleave(contenders: Mapping[str, Block], rounds: int, *, warm: int = 3) -> Measurements:
    """Let each contender run a block per turn, in an order that changes with each turn.

    The order affects the processor's caches. The first `warm` turns do not count: they build plans
    and fill caches.
    """
    names = list(contenders)
    turns = warm + rounds
    order = random.Random(turns)
    results = Measurements({name: [] for name in names})
    for turn in range(turns):
        for name in order.sample(names, len(names)):
            figures = run_uninterrupted(contenders[name], turn)
            if turn >= warm:
                results.blocks[name].append(figures)
    return results


def run_uninterrupted(block: Block, turn: int) -> Figures:
    """Run a block, again if the system interrupted it.

    After `MAX_TRIES` the last run counts, and `interrupted` is set.
    """
    for _ in range(MAX_TRIES):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        figures = block(turn)
        interrupted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before
        if not interrupted:
            break
    return {**figures, "interrupted": float(bool(interrupted))}


def clock_cost() -> float:
    """Return the cost of reading the clock in nanoseconds; timings subtract it."""
    clock = time.perf_counter_ns
    readings = []
    for _ in range(2000):
        start = clock()
        readings.append(clock() - start)
    return statistics.median(readings)


def process_memory(what: str) -> float:
    """Return the current (`VmRSS`) or peak (`VmHWM`) memory of this process in KiB.

    Not from getrusage: there a new process starts with its parent's peak.
    """
    try:
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith(f"{what}:"):
                return float(line.split()[1])
    except OSError:
        pass
    return float("nan")


def number(value: float) -> str:
    """Format a figure with three significant digits."""
    if value != value:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


@dataclass
class Report:
    """The figures and tables of one benchmark, with the machine."""

    name: str
    title: str
    figures: dict[str, Any] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def add(self, text: str) -> None:
        self.parts.append(text)

    def spreads(self, results: Measurements) -> None:
        """Add every figure of a run to the JSON."""
        for name, blocks in results.blocks.items():
            keys = dict.fromkeys(key for one in blocks for key in one)
            self.figures[name] = {key: asdict(results.spread(name, key)) for key in keys}

    def write(self) -> None:
        """Print the Markdown, and write it and the JSON to the results folder."""
        machine = {**_machine(), "load_before": self.load, "load_after": os.getloadavg()[0]}
        max_load = MAX_LOAD_PER_CORE * (os.cpu_count() or 1)
        under_load = max(self.load, machine["load_after"]) > max_load
        description = (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
            f"Python {machine['python']}, policyguard {machine['policyguard']}; "
            f"load {self.load:.1f} → {machine['load_after']:.1f}"
            + (" (**under load**)" if under_load else "")
        )
        text = "\n\n".join([f"## {self.title}", description, *self.parts]) + "\n"
        RESULTS.mkdir(exist_ok=True)
        result = {"benchmark": self.name, "machine": machine, "figures": self.figures}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        (RESULTS / f"{self.name}.md").write_text(text, "utf-8")
        print(text)


def _machine() -> dict[str, Any]:
    """Return the kind of machine and the relevant versions."""
    packages = ("policyguard-engine", "msgspec", "google-re2", "cel-python")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "policyguard": versions["policyguard-engine"],
        "versions": versions,
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
