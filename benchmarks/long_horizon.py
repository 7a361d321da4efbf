"""The long-horizon benchmark of constraint learning, run on the real Guard.

    python -m benchmarks.long_horizon [--format text|json]

A simulated agent works on six files, remembers its last `window` outcomes, and repeats a forgotten
failure in 30 % of its proposals (Mulberry32, deterministic). The facts are those of
"narrowing", §4.5; the guards are policies: `none`, `narrowing` (as published), `core` and `strict`.

The simulated project never changes, so every policy is run with `reset_on: none`, at one instant,
with no cap on constraints but narrowing's own, and with every limit off: only learning is measured.
`false_blocks`, which the paper does not report, counts blocked calls that would have succeeded.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from policyguard import Guard
from policyguard.compiler import CompiledPolicy, compile_policy

FILES = {
    "server.js": ("express", "require"),
    "routes/api.js": ("router.get", "handler"),
    "routes/auth.js": ("app.post", "authenticate"),
    "config.json": ("3000", "localhost"),
    "package.json": ("test-app", "1.0.0"),
    "styles.css": ("black", "body"),
}
NAMES = (*FILES, "nonexistent.js", "missing.ts", "ghost.py")
TOOLS = ("read_file", "edit_file", "bash", "search_files", "create_file")
STRINGS = ("express", "handler", "NONEXISTENT_PATTERN", "bogus_search", "app.post", "3000", "black")
COMMANDS = (
    "npm test",
    "npm run build",
    "bad_command --flag",
    "node syntax_error.js",
    "ls -la",
    "cat server.js",
)
TEXTS = {
    "file_not_found": "ENOENT: no such file or directory, open '{}'",
    "edit_failed": "search string not found in {}",
    "command_failed": "command failed: exit code 127: {}",
    "syntax_error": "SyntaxError: Unexpected token in {}",
    "conflict": "EEXIST: {} already exists",
}
FAILURE_COST = 0.003
BLOCK_COST = 0.1 * FAILURE_COST
REPLAY_SHARE = 0.30
MAX_PROPOSALS = 5
INSTANT = 1_767_225_600 * 10**9

POLICIES = {
    "narrowing": "extends: [packs/narrowing]",
    "core": "extends: [core]\nlearn: {reset_on: none}",
    "strict": "extends: [packs/strict]\nlearn: {reset_on: none}",
}
NO_LIMITS = """
limits:
  default: {repeat: none, cycle: none, stale: none, failures: none, refusals: none}
"""


@dataclass
class Run:
    """One run's figures; `cost` in dollars, accumulated in the order of the calls."""

    guard: str
    seed: int
    window: int
    calls: int
    ok: int = 0
    failed: int = 0
    repeats: int = 0
    blocked: int = 0
    blocked_by_limits: int = 0
    false_blocks: int = 0
    cost: float = 0.0


def mulberry32(seed: int) -> Callable[[], float]:
    """Tommy Ettinger's Mulberry32: a 32-bit generator with one word of state."""
    mask = 0xFFFFFFFF
    state = seed & mask

    def draw() -> float:
        nonlocal state
        state = (state + 0x6D2B79F5) & mask
        mixed = ((state ^ (state >> 15)) * (1 | state)) & mask
        mixed = (mixed + (((mixed ^ (mixed >> 7)) * (61 | mixed)) & mask)) & mask ^ mixed
        return ((mixed ^ (mixed >> 14)) & mask) / 4294967296

    return draw


def execute(tool: str, args: dict[str, str]) -> str | None:
    """Return the kind of failure in the simulated project, or None for success."""
    file = args.get("file") or args.get("path")
    exists = file in FILES
    if tool in ("read_file", "edit_file") and not exists:
        return "file_not_found"
    if tool == "edit_file":
        old = args["old_string"]
        found = any(old in piece or piece in old for piece in FILES[str(file)])
        return None if found else "edit_failed"
    if tool == "bash" and "bad_command" in args["command"]:
        return "command_failed"
    if tool == "bash" and "syntax_error" in args["command"]:
        return "syntax_error"
    return "conflict" if tool == "create_file" and exists else None


class Agent:
    """Proposes calls from its memory: (tool, args, succeeded), the latest last."""

    def __init__(self, seed: int, window: int) -> None:
        self._draw = mulberry32(seed)
        self._window = window
        self.outcomes: list[tuple[str, dict[str, str], bool]] = []

    def propose(self) -> tuple[str, dict[str, str]]:
        """Return a forgotten failure again, or a call that did not just fail."""
        remembered = self.outcomes[-self._window :]
        forgotten = [
            outcome for outcome in self.outcomes[: -self._window or None] if not outcome[2]
        ]
        if len(self.outcomes) <= self._window:
            forgotten = []
        if forgotten and self._draw() < REPLAY_SHARE:
            tool, args, _ = forgotten[int(self._draw() * len(forgotten))]
            return tool, args
        failed = [(tool, args) for tool, args, ok in remembered if not ok]
        for _ in range(MAX_PROPOSALS):
            call = self._make_call()
            if call not in failed:
                break
        return call

    def _make_call(self) -> tuple[str, dict[str, str]]:
        draw = self._draw
        tool = TOOLS[int(draw() * len(TOOLS))]
        file = NAMES[int(draw() * len(NAMES))]
        if tool == "read_file":
            return tool, {"file": file}
        if tool == "edit_file":
            old = STRINGS[int(draw() * len(STRINGS))]
            return tool, {"file": file, "old_string": old, "new_string": "replacement"}
        if tool == "bash":
            return tool, {"command": COMMANDS[int(draw() * len(COMMANDS))]}
        if tool == "search_files":
            return tool, {"pattern": "TODO", "path": "."}
        return tool, {"file": file, "content": "new file content"}


def run(name: str, compiled: CompiledPolicy | None, seed: int, window: int, calls: int) -> Run:
    """Run one agent under one guard."""
    figures = Run(name, seed, window, calls)
    agent = Agent(seed, window)
    session = None
    if compiled is not None:
        session = Guard(compiled, clock=lambda: INSTANT).session("agent")
    failed_before: set[str] = set()
    for _ in range(calls):
        tool, args = agent.propose()
        failure = execute(tool, args)
        decision = session.check(tool, args) if session is not None else None
        if decision is not None and not decision.allowed:
            figures.blocked += 1
            figures.cost += BLOCK_COST
            learned = [one for one in decision.violations if one.id.startswith("constraints/")]
            figures.blocked_by_limits += not learned
            figures.false_blocks += failure is None
            continue
        agent.outcomes.append((tool, args, failure is None))
        target = args.get("file") or args.get("path") or args.get("command") or "none"
        if failure is None:
            figures.ok += 1
        else:
            figures.failed += 1
            figures.cost += FAILURE_COST
            # The paper counts the same failure on the same target as a repeat.
            failure_key = f"{failure}:{args.get('file') or args.get('command') or 'none'}"
            figures.repeats += failure_key in failed_before
            failed_before.add(failure_key)
        if session is not None and decision is not None:
            text = "done" if failure is None else TEXTS[failure].format(target)
            session.record(decision, result=text, error=None if failure is None else text)
    figures.cost = math.floor(figures.cost * 1000 + 0.5) / 1000
    return figures


def policies() -> dict[str, CompiledPolicy | None]:
    """Compile the guards under the conditions of the benchmark."""
    guards: dict[str, CompiledPolicy | None] = {"none": None}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in POLICIES.items():
            file = Path(folder) / f"{name}.yaml"
            file.write_text(f"policyguard: 1\nname: {name}\n{text}\n{NO_LIMITS}")
            guards[name] = compile_policy(file)
    return guards


def measure() -> list[Run]:
    """Run every published combination, and the seeds of the means."""
    guards = policies()
    runs = []
    for name, compiled in guards.items():
        runs += [run(name, compiled, 42, window, 200) for window in (10, 20, 50)]
        runs += [run(name, compiled, 42, 20, calls) for calls in (50, 100, 150)]
        runs += [run(name, compiled, seed, 20, 200) for seed in range(1, 201)]
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    runs = measure()
    if options.format == "json":
        print(json.dumps([asdict(one) for one in runs]))
        return
    print(_table([one for one in runs if one.seed == 42]))
    print("\nmeans over seeds 1 to 200, window 20, 200 calls")
    for name in ("none", *POLICIES):
        matching = [one for one in runs if (one.guard, one.window, one.calls) == (name, 20, 200)]
        selected = list({one.seed: one for one in matching}.values())
        mean: dict[str, Any] = {
            field: sum(getattr(one, field) for one in selected) / len(selected)
            for field in ("ok", "failed", "repeats", "blocked", "false_blocks", "cost")
        }
        print(f"{name:<10} " + "  ".join(f"{key} {value:.3f}" for key, value in mean.items()))


def _table(runs: list[Run]) -> str:
    lines = ["guard      window calls    ok failed repeats blocked limits false  cost"]
    lines += [
        f"{one.guard:<10} {one.window:>6} {one.calls:>5} {one.ok:>5} {one.failed:>6} "
        f"{one.repeats:>7} {one.blocked:>7} {one.blocked_by_limits:>6} {one.false_blocks:>5} "
        f"{one.cost:>6.3f}"
        for one in runs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
