"""How benchmarks measure and tell: blocks in turn, medians with quartiles, JSON and Markdown.

Contenders take turns in small blocks, so that whatever else the machine does hits all alike. A
block's figure is the mean of its calls; a block that was interrupted is measured again. What is
reported is the median over blocks, with the quartiles, and ratios block by block. On a busy machine
trust the ratios.

Only the standard library is used here: what stands beside policyguard in a comparison measures in
the same way, in an environment of its own.
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
BUSY = 1.0
"""Runnable processes a core, over the last minute, above which a run counts as under load."""
TRIES = 5
"""How often a block is measured anew where the system takes the processor away."""

Figures = Mapping[str, float]
"""What one block gave, by name; microseconds a call unless the name says otherwise."""
Block = Callable[[int], Figures]
"""Runs the calls of one block; the number is how many blocks there were before."""


@dataclass(frozen=True)
class Spread:
    """A median, its quartiles, and how many values they are of."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        known = list(values)
        if len(known) < 2:
            only = known[0] if known else float("nan")
            return cls(only, only, only, len(known))
        low, middle, high = statistics.quantiles(known, n=4, method="inclusive")
        return cls(middle, low, high, len(known))

    def __str__(self) -> str:
        if self.count == 0:
            return "–"
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


@dataclass
class Taken:
    """What each contender's blocks gave, in turn."""

    blocks: dict[str, list[Figures]]

    def spread(self, contender: str, figure: str) -> Spread:
        return Spread.of(one[figure] for one in self.blocks[contender] if figure in one)

    def ratio(self, contender: str, other: str, figure: str) -> Spread:
        """How many times the other's, block by block of the same turn."""
        pairs = zip(self.blocks[contender], self.blocks[other], strict=True)
        return Spread.of(
            one[figure] / two[figure] for one, two in pairs if figure in one and two.get(figure)
        )


def interleave(contenders: Mapping[str, Block], rounds: int, *, warm: int = 3) -> Taken:
    """Let each run a block in turn, so many times, in an order that changes with each turn.

    What comes before leaves its traces in the processor's caches. The first `warm` turns count for
    nobody: plans are made then, and caches filled.
    """
    names = list(contenders)
    turns = warm + rounds
    order = random.Random(turns)
    taken = Taken({name: [] for name in names})
    for turn in range(turns):
        for name in order.sample(names, len(names)):
            figures = undisturbed(contenders[name], turn)
            if turn >= warm:
                taken.blocks[name].append(figures)
    return taken


def undisturbed(block: Block, turn: int) -> Figures:
    """What a block gives; again where the system took the processor away meanwhile.

    After some tries the last one stands, disturbed as it is: `interrupted` says so.
    """
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        figures = block(turn)
        interrupted = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before
        if not interrupted:
            break
    return {**figures, "interrupted": float(bool(interrupted))}


def clock_cost() -> float:
    """What asking for the time costs, in nanoseconds; it is taken off what is timed."""
    clock = time.perf_counter_ns
    gaps = []
    for _ in range(2000):
        begun = clock()
        gaps.append(clock() - begun)
    return statistics.median(gaps)


def kept(what: str) -> float:
    """KiB of memory that this process has (`VmRSS`) or had at most (`VmHWM`).

    Not from getrusage: there a new process begins with its parent's peak.
    """
    try:
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith(f"{what}:"):
                return float(line.split()[1])
    except OSError:
        pass
    return float("nan")


def number(value: float) -> str:
    """A figure with three digits that matter."""
    if value != value:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


@dataclass
class Report:
    """One benchmark's figures and tables, on the machine that it ran on."""

    name: str
    title: str
    figures: dict[str, Any] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def add(self, text: str) -> None:
        self.parts.append(text)

    def spreads(self, taken: Taken) -> None:
        """Put every figure of a run into the JSON."""
        for name, blocks in taken.blocks.items():
            keys = dict.fromkeys(key for one in blocks for key in one)
            self.figures[name] = {key: asdict(taken.spread(name, key)) for key in keys}

    def write(self) -> None:
        """Print the Markdown, and put it with the JSON into the results' folder."""
        machine = {**_machine(), "load_before": self.load, "load_after": os.getloadavg()[0]}
        busy = max(self.load, machine["load_after"]) > BUSY * (os.cpu_count() or 1)
        told = (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, "
            f"Python {machine['python']}, policyguard {machine['policyguard']}; "
            f"load {self.load:.1f} → {machine['load_after']:.1f}"
            + (" (**under load**)" if busy else "")
        )
        text = "\n\n".join([f"## {self.title}", told, *self.parts]) + "\n"
        RESULTS.mkdir(exist_ok=True)
        whole = {"benchmark": self.name, "machine": machine, "figures": self.figures}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
        (RESULTS / f"{self.name}.md").write_text(text, "utf-8")
        print(text)


def _machine() -> dict[str, Any]:
    """The kind of machine, and the versions that matter; no name of either."""
    named = ("policyguard-engine", "msgspec", "google-re2", "cel-python")
    versions = {name: importlib.metadata.version(name) for name in named}
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
