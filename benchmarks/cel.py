"""CEL, engine against engine: policyguard, Google's C++ binding, cel-python's interpreter.

    python benchmarks/cel.py [--rounds N] [--json]

All engines run in one process and take turns, expression by expression, so that other load affects
them alike; each figure is the median of its rounds. Only evaluation is timed: programs and
activations are built before (for the C++ binding also with a new activation per evaluation, because
a call's arguments are new each time). Compare the ratios, not the microseconds.

The expressions: `CEL_BENCH` (default: `../shared/cel-bench/expressions.json` beside the project),
and our own in `cel_expressions.json`, taken from policies. Expressions with functions that only
policyguard has are timed for it alone.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policyguard import cel

HERE = Path(__file__).resolve().parent
BENCH = Path(
    os.environ.get("CEL_BENCH", HERE.parent.parent / "shared" / "cel-bench" / "expressions.json")
)
OURS = "policyguard"
CPP = "cel-expr-python"
CPP_NEW = "cel-expr-python, new activation"
CELPY = "cel-python"

Evaluate = Callable[[], object]


@dataclass
class Case:
    """One expression, its engines, and their times."""

    name: str
    source: str
    engines: dict[str, Evaluate] = field(default_factory=dict)
    loops: dict[str, int] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)

    def median(self, engine: str) -> float:
        """Return microseconds per evaluation."""
        return statistics.median(self.times[engine]) * 1e6


class Engines:
    """Compiles expressions for every engine that is installed."""

    def __init__(self, context: dict[str, Any], now: str | None) -> None:
        self.context = dict(context)
        self.moment = datetime.datetime.fromisoformat(now) if now else None
        self.declarations = cel.Declarations(
            {**dict.fromkeys(context, cel.DYN), **({"now": cel.TIMESTAMP} if now else {})}
        )

    def ours(self, source: str) -> Evaluate:
        program = cel.compile(source, self.declarations)
        values = dict(self.context)
        if self.moment is not None:
            values["now"] = cel.Timestamp.from_ns(int(self.moment.timestamp()) * 10**9)
        function = program.function
        arguments = [values[name] for name in program.parameters]
        if len(arguments) == 1:
            (argument,) = arguments
            return lambda: function(argument)
        return lambda: function(*arguments)

    def cpp(self, source: str) -> dict[str, Evaluate]:
        try:
            from cel_expr_python import cel as binding
        except ImportError:
            return {}
        types = binding.Type
        values = dict(self.context)
        variables = dict.fromkeys(values, types.DYN)
        if self.moment is not None:
            values["now"] = self.moment
            variables["now"] = types.TIMESTAMP
        environment = binding.NewEnv(variables=variables)
        expression = environment.compile(source)
        activation = environment.Activation(values)
        return {
            CPP: lambda: expression.eval(activation),
            CPP_NEW: lambda: expression.eval(environment.Activation(values)),
        }

    def celpy(self, source: str) -> Evaluate:
        import celpy

        environment = celpy.Environment()
        program = environment.program(environment.compile(source))
        activation = {name: celpy.json_to_cel(value) for name, value in self.context.items()}
        if self.moment is not None:
            activation["now"] = celpy.celtypes.TimestampType(self.moment)

        def evaluate() -> object:
            try:
                return program.evaluate(activation)
            except celpy.CELEvalError as error:
                return error

        return evaluate


def cases() -> list[Case]:
    """Compile every expression for its engines."""
    result = []
    sets = [json.loads((HERE / "cel_expressions.json").read_text("utf-8"))]
    if BENCH.exists():
        sets.insert(0, json.loads(BENCH.read_text("utf-8")))
    else:
        print(f"no expressions at {BENCH}: set CEL_BENCH", file=sys.stderr)
    for data in sets:
        engines = Engines(data["context"], data.get("now"))
        for name, source in data["expressions"].items():
            case = Case(name, source, {OURS: engines.ours(source)})
            if name in data.get("portable", data["expressions"]):
                case.engines |= engines.cpp(source)
                case.engines[CELPY] = engines.celpy(source)
            result.append(case)
    return result


def time_loops(evaluate: Evaluate, loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        evaluate()
    return (time.perf_counter() - start) / loops


def run(all_cases: list[Case], rounds: int) -> None:
    for case in all_cases:
        for engine, evaluate in case.engines.items():
            once = max(time_loops(evaluate, 3), 1e-7)
            case.loops[engine] = max(1, int(0.004 / once))
            case.times[engine] = []
    for _ in range(rounds):
        for case in all_cases:
            for engine, evaluate in case.engines.items():
                case.times[engine].append(time_loops(evaluate, case.loops[engine]))


def compile_times(all_cases: list[Case], rounds: int) -> list[float]:
    """Return the milliseconds to compile each expression once the parser is loaded."""
    result = []
    for data in (BENCH, HERE / "cel_expressions.json"):
        if not data.exists():
            continue
        loaded = json.loads(data.read_text("utf-8"))
        declarations = Engines(loaded["context"], loaded.get("now")).declarations
        for source in loaded["expressions"].values():

            def once(source: str = source, d: cel.Declarations = declarations) -> object:
                return cel.compile(source, d)

            result.append(statistics.median(time_loops(once, 5) for _ in range(rounds)) * 1e3)
    return result


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def report(all_cases: list[Case], compiled: list[float]) -> dict[str, Any]:
    print(f"{'expression':30}{OURS:>13}{CPP:>18}{'(new activation)':>18}{CELPY:>13}   µs")
    for case in all_cases:
        cells = [
            f"{case.median(engine):{width}.2f}" if engine in case.times else " " * (width - 1) + "–"
            for engine, width in ((OURS, 13), (CPP, 18), (CPP_NEW, 18), (CELPY, 13))
        ]
        print(f"{case.name:30}{''.join(cells)}")
    ratios = {}
    for engine in (CPP, CPP_NEW, CELPY):
        shared = [case for case in all_cases if engine in case.times]
        if shared:
            ratios[engine] = geometric_mean([c.median(engine) / c.median(OURS) for c in shared])
            print(
                f"policyguard is {ratios[engine]:,.1f} times as fast as {engine} (geometric mean)"
            )
    print(
        f"compilation: median {statistics.median(compiled):.2f} ms per expression, "
        f"slowest {max(compiled):.2f} ms"
    )
    return {
        "microseconds": {c.name: {e: c.median(e) for e in c.times} for c in all_cases},
        "ratios": ratios,
        "compile_ms": {"median": statistics.median(compiled), "max": max(compiled)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    options = parser.parse_args()
    all_cases = cases()
    run(all_cases, options.rounds)
    figures = report(all_cases, compile_times(all_cases, options.rounds))
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
