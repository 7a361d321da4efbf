"""The paper's hyper-parameter search against a simulated memory boundary, on the real Guard.

    python -m benchmarks.search_boundary [--format text|json]

Five search runs of 25 trials look for the best network that one GPU can train. Each run starts
without memory, and shares what its guard has learned with later runs: one Guard, one session a run,
scope project. "narrowing" (§3) reports the behavior of such runs: the second proposal is near the
boundary and runs out of memory, a similar third one does too, then the optimiser stays below known
failures, explores around its best, and sometimes retries a failure.

The guards are policies: `none`; `exact` bans the configuration that ran out of memory; `classes`
bans, as narrowing does, the class of change (deeper, wider …) after two failures in it, if the host
says how a proposal differs from the previous one; `regions` is the pack `ml-training`.

As in the paper a refused proposal uses up its trial. `lost` counts refused proposals that would
have fitted, `known` those that ran out of memory although a configuration no larger in any
parameter had done so before. `wasted` trials ran out of memory, or lost a configuration that fits
(the paper adds all refused ones to the former: `oom` + `blocked`).
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.long_horizon import mulberry32
from policyguard import Guard
from policyguard.compiler import CompiledPolicy, compile_policy

T = TypeVar("T")

RUNS = 5
TRIALS = 25
EXPERIMENTS = 20
INSTANT = 1_767_225_600 * 10**9

MEMORY = 24e9
"""Bytes of the GPU."""
SEQUENCE = 2048
BYTES_PER_WEIGHT = 18
"""Mixed precision with Adam: the weight, its gradient, and the optimiser's state."""
BYTES_PER_ACTIVATION = 90
"""Of all that is kept for the backward pass, for each token, layer and channel."""
GOOD_RATE = 0.03

DEPTHS = tuple(range(2, 17))
WIDTHS = tuple(range(128, 1025, 64))
BATCHES = (16, 32, 48, 64)
RATES = (0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08)
AMBITIOUS_SHARE = 0.08
"""How often the optimiser tries a much larger configuration, ignoring known failures."""
RETRY_SHARE = 0.04
"""How often it retries a failure."""
SIMILAR_SHARE = 0.9
"""How often it reacts to the first failure with a slightly smaller configuration."""
MAX_ATTEMPTS = 20

OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {:.2f} GiB"
SIGNATURE = "{id: oom_gpu, pattern: CUDA out of memory, blame: agent}"
ACTIONS = (
    "scale_up_width",
    "scale_up_depth",
    "scale_down",
    "lr_increase",
    "lr_decrease",
    "batch_size_increase",
)
"""Narrowing's classes of change, in their order, as far as this search has them."""
POLICIES = {
    "exact": f"signatures: [{SIGNATURE}]\n"
    "learn: {ban: call, corroborate: 1, scope: project, reset_on: none}",
    "classes": f"signatures: [{SIGNATURE}]\n"
    "tags: {action: {type: string, default: ''}}\n"
    "classify:\n  classes:\n"
    + "".join(f"    - {{class: {one}, when: tags.action == '{one}'}}\n" for one in ACTIONS)
    + "learn: {ban: class, corroborate: 2, scope: project, reset_on: none, most: 5, "
    "weaken: {on_success: keep}}",
    "regions": "extends: [ml-training]",
}


class Config(NamedTuple):
    """The configuration of a trial."""

    depth: int
    width: int
    batch_size: int
    matrix_lr: float

    def exceeds(self, other: Config) -> bool:
        """Whether each parameter that needs memory is at least as large."""
        return (
            self.depth >= other.depth
            and self.width >= other.width
            and self.batch_size >= other.batch_size
        )


BASELINE = Config(4, 256, 32, 0.02)


@dataclass
class Run:
    """One search run's figures; `best` is the lowest bits-per-byte."""

    guard: str
    experiment: int
    run: int
    trials: int = 0
    ok: int = 0
    oom: int = 0
    known: int = 0
    blocked: int = 0
    lost: int = 0
    wasted: int = 0
    best: float = math.inf


def memory(config: Config) -> float:
    """Return the bytes that training needs; they grow with depth, width and batch size."""
    weights = 12 * config.depth * config.width**2
    activations = config.batch_size * SEQUENCE * config.depth * config.width
    return BYTES_PER_WEIGHT * weights + BYTES_PER_ACTIVATION * activations


def fits(config: Config) -> bool:
    """Whether the GPU can train it."""
    return memory(config) <= MEMORY


def score(config: Config) -> float:
    """Return bits per byte after training: larger networks are better, at a good learning rate."""
    weights = 12 * config.depth * config.width**2
    log_ratio = math.log(config.matrix_lr / GOOD_RATE)
    return (
        0.9
        + 6.0 * math.pow(weights, -0.12)
        + 0.05 * log_ratio * log_ratio
        - 0.0005 * config.batch_size
    )


def action(config: Config, previous: Config | None) -> str:
    """Return narrowing's class of the change from the previous proposal, or empty."""
    if previous is None:
        return ""
    changes = (
        config.width > previous.width,
        config.depth > previous.depth,
        config.width < previous.width or config.depth < previous.depth,
        config.matrix_lr > previous.matrix_lr,
        config.matrix_lr < previous.matrix_lr,
        config.batch_size > previous.batch_size,
    )
    return next((name for name, holds in zip(ACTIONS, changes, strict=True) if holds), "")


class Optimiser:
    """Proposes configurations from the results of one run."""

    def __init__(self, seed: int) -> None:
        self._draw = mulberry32(seed)
        self._proposed = 0
        self._best: tuple[float, Config] | None = None
        self._failed: list[Config] = []

    def learn(self, config: Config, result: float | None) -> None:
        """Record the score of a trial; None if it ran out of memory or was refused."""
        if result is None:
            self._failed.append(config)
        elif self._best is None or result < self._best[0]:
            self._best = result, config

    def propose(self) -> Config:
        """The next configuration."""
        self._proposed += 1
        if self._proposed == 1:
            return BASELINE
        if self._proposed == 2:
            return Config(self._choose((8, 10, 12)), self._choose((512, 576, 640)), 32, 0.02)
        if self._proposed == 3 and self._failed and self._draw() < SIMILAR_SHARE:
            return self._smaller(self._failed[-1])
        if self._failed and self._draw() < RETRY_SHARE:
            return self._choose(self._failed)
        ambitious = self._draw() < AMBITIOUS_SHARE
        base = self._best[1] if self._best is not None else BASELINE
        config = self._mutate(base, far=ambitious)
        for _ in range(MAX_ATTEMPTS):
            # Stay below known failures of this run, unless ambitious.
            if ambitious or not any(map(config.exceeds, self._failed)):
                break
            config = self._mutate(base, far=False)
        return config

    def _mutate(self, base: Config, *, far: bool) -> Config:
        """Another configuration: one or two parameters a step away, or (`far`) much larger."""
        depth, width, batch, rate = base
        if far:
            depth = _step(DEPTHS, depth, 1 + int(self._draw() * 4))
            width = _step(WIDTHS, width, int(self._draw() * 4))
            return Config(depth, width, batch, rate)
        for _ in range(1 + int(self._draw() * 2)):
            offset = 1 if self._draw() < 0.6 else -1
            parameter = int(self._draw() * 4)
            if parameter == 0:
                depth = _step(DEPTHS, depth, offset)
            elif parameter == 1:
                width = _step(WIDTHS, width, offset)
            elif parameter == 2:
                batch = _step(BATCHES, batch, offset)
            else:
                rate = _step(RATES, rate, offset)
        return Config(depth, width, batch, rate)

    def _smaller(self, config: Config) -> Config:
        if self._draw() < 0.5:
            return config._replace(depth=_step(DEPTHS, config.depth, -1))
        return config._replace(width=_step(WIDTHS, config.width, -1))

    def _choose(self, items: tuple[T, ...] | list[T]) -> T:
        return items[int(self._draw() * len(items))]


def _step(scale: tuple[T, ...], value: T, offset: int) -> T:
    return scale[max(0, min(len(scale) - 1, scale.index(value) + offset))]


def search(name: str, compiled: CompiledPolicy | None, experiment: int) -> list[Run]:
    """Run five searches in sequence under one guard."""
    guard = Guard(compiled, clock=lambda: INSTANT) if compiled is not None else None
    failed: list[Config] = []
    return [_run(Run(name, experiment, number), guard, failed) for number in range(1, RUNS + 1)]


def _run(figures: Run, guard: Guard | None, failed: list[Config]) -> Run:
    """Run one search. `failed` holds the failures of this experiment so far."""
    optimiser = Optimiser(figures.experiment * 1000 + figures.run)
    session = guard.session(f"run {figures.run}", project="search") if guard is not None else None
    previous: Config | None = None
    for _ in range(TRIALS):
        config = optimiser.propose()
        figures.trials += 1
        decision = None
        if session is not None:
            # Only this policy has the tag.
            tags = {"action": action(config, previous)} if figures.guard == "classes" else {}
            decision = session.check("train", config._asdict(), tags=tags)
        if decision is not None and not decision.allowed:
            figures.blocked += 1
            figures.lost += fits(config)
            optimiser.learn(config, None)
            continue
        previous = config
        is_trainable = fits(config)
        if session is not None and decision is not None:
            error = None if is_trainable else OOM.format((memory(config) - MEMORY) / 2**30)
            session.record(decision, result="trained", error=error)
        if is_trainable:
            figures.ok += 1
            figures.best = min(figures.best, score(config))
            optimiser.learn(config, score(config))
        else:
            figures.oom += 1
            figures.known += any(map(config.exceeds, failed))
            failed.append(config)
            optimiser.learn(config, None)
    figures.wasted = figures.oom + figures.lost
    figures.best = round(figures.best, 4)
    return figures


def policies() -> dict[str, CompiledPolicy | None]:
    """Compile the guards."""
    guards: dict[str, CompiledPolicy | None] = {"none": None}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in POLICIES.items():
            file = Path(folder) / f"{name}.yaml"
            file.write_text(f"policyguard: 1\nname: {name}\n{text}\n")
            guards[name] = compile_policy(file)
    return guards


def measure() -> list[Run]:
    """Run every guard in every experiment. The first is shown run by run."""
    return [
        run
        for name, compiled in policies().items()
        for experiment in range(1, EXPERIMENTS + 1)
        for run in search(name, compiled, experiment)
    ]


FIELDS = ("trials", "ok", "oom", "known", "blocked", "lost", "wasted")


def _table(runs: list[Run], format_value: Callable[[float], str], divisor: int) -> str:
    head = "guard    " + "".join(f"{field:>9}" for field in FIELDS) + "     best   oom by run"
    lines = [head]
    for name in ("none", *POLICIES):
        selected = [run for run in runs if run.guard == name]
        cells = "".join(
            f"{format_value(sum(getattr(run, field) for run in selected) / divisor):>9}"
            for field in FIELDS
        )
        best = sum(run.best for run in selected) / len(selected)
        by_run = " ".join(
            format_value(sum(run.oom for run in selected if run.run == number) / divisor)
            for number in range(1, RUNS + 1)
        )
        lines.append(f"{name:<9}{cells}{best:>9.4f}   {by_run}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    runs = measure()
    if options.format == "json":
        print(json.dumps([asdict(run) for run in runs]))
        return
    print(f"one experiment: {RUNS} runs of {TRIALS} trials")
    print(_table([run for run in runs if run.experiment == 1], lambda value: f"{value:.0f}", 1))
    print(f"\nmeans over {EXPERIMENTS} experiments")
    print(_table(runs, lambda value: f"{value:.1f}", EXPERIMENTS))


if __name__ == "__main__":
    main()
