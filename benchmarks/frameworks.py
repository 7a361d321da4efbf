"""What a guarded call costs beside the bare framework.

    python -m benchmarks.frameworks [--quick]

In each framework's environment (`make test-frameworks` makes them) a scripted model calls a tool
that returns at once, in a bare agent and in a guarded one, which take turns. The policy is `core`,
without a store. A figure is what a run takes, divided by its calls: the turn of the model included.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurements, Report, Spread, interleave, table
from policyguard import Guard

FRAMEWORKS = {
    "langchain": "LangChain",
    "openai_agents": "OpenAIAgents",
    "pydantic_ai": "PydanticAI",
    "google_adk": "GoogleADK",
    "strands": "Strands",
    "claude_agent_sdk": "ClaudeAgentSDK",
    "agent_framework": "AgentFramework",
    "autogen": "AutoGen",
    "ag2": "AG2",
    "crewai": "CrewAI",
    "llama_index": "LlamaIndex",
    "smolagents": "Smolagents",
}
"""Modules of `tests/adapters/frameworks`, and the class there that runs a script."""
CALLS = 8
"""Calls of a run: more of one tool in a turn, with results that are new, no limit minds."""


def measure(module: str, rounds: int) -> None:
    """Measure one framework in this environment, and print its blocks as JSON."""
    from tests.adapters.frameworks.scripts import Call

    found = importlib.import_module(f"tests.adapters.frameworks.test_{module}")
    framework: Any = getattr(found, FRAMEWORKS[module])()

    def read_page(page: int) -> str:
        return f"page {page} of {time.perf_counter_ns()}"

    runs = iter(range(1_000_000))

    def run(guard: Guard | None) -> dict[str, float]:
        number = next(runs)
        script = [[Call("read_page", {"page": number * CALLS + call})] for call in range(CALLS)]
        start = time.perf_counter_ns()
        mode = "async" if "async" in framework.modes else "sync"
        framework.run(
            guard, [*script, "done"], {"read_page": read_page}, mode=mode, run=f"run-{number}"
        )
        return {"call": (time.perf_counter_ns() - start) / 1e3 / CALLS}

    with Guard.load("core") as guard, tempfile.TemporaryDirectory() as home:
        framework.home = Path(home)  # the Claude Agent SDK's
        results = interleave({"bare": lambda _: run(None), "guarded": lambda _: run(guard)}, rounds)
    print(json.dumps(results.blocks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--measure", choices=FRAMEWORKS, help="one framework, in this environment")
    given = parser.parse_args()
    rounds = 20 if given.quick else 60
    if given.measure:
        measure(given.measure, rounds)
        return
    rows, blocks = [], {}
    for module in FRAMEWORKS:
        python = Path(f".venv-frameworks/{module}/bin/python")
        if not python.exists():
            continue
        command = [str(python), "-m", "benchmarks.frameworks", "--measure", module]
        output = subprocess.run(
            [*command, *["--quick"] * given.quick], check=True, stdout=subprocess.PIPE
        ).stdout
        results = Measurements(json.loads(output.splitlines()[-1]))
        pairs = zip(results.blocks["guarded"], results.blocks["bare"], strict=True)
        added = Spread.of(one["call"] - two["call"] for one, two in pairs)
        rows.append([module, results.spread("bare", "call"), added])
        blocks |= {f"{module}, {name}": found for name, found in results.blocks.items()}
    report = Report("frameworks", "Guarded calls beside the bare framework")
    report.add(f"Medians over {rounds} runs of {CALLS} calls, quartiles in brackets.")
    report.add(table(["framework", "bare µs a call", "added µs"], rows))
    report.spreads(Measurements(blocks))
    report.write()


if __name__ == "__main__":
    main()
