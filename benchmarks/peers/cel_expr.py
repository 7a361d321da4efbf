"""cel-expr-python: the expressions one after the other, with one activation per call."""

from __future__ import annotations

from cel_expr_python import cel

from benchmarks.peers.protocol import Run, serve, time_each
from benchmarks.rules import rules
from benchmarks.workload import Call


def run() -> Run:
    environment = cel.NewEnv(variables={"call": cel.Type.DYN})
    programs = [environment.compile(rule.cel) for rule in rules(15)]

    def check(call: Call) -> bool:
        activation = environment.Activation({"call": {"args": call.args}})
        return not any(program.eval(activation).value() for program in programs)

    assert not check(Call("search", {"query": "a password 0", "limit": 1, "page": 1}, "", None))
    return time_each(check)


if __name__ == "__main__":
    serve("cel-expr-python", run())
