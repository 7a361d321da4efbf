"""edictum: `evaluate` (rules, a dry run) or `run` (rules, limits, audit, and the tool)."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from edictum import Edictum, EdictumDenied, OperationLimits

from benchmarks.peers.protocol import Run, Times, serve, time_each
from benchmarks.rules import Rule, rules
from benchmarks.workload import Call

_OPERATORS = {"equals": "equals", "contains": "contains", "prefix": "starts_with", "above": "gt"}


def run(method: str) -> Run:
    guard = Edictum.from_yaml_string(json.dumps(_rules()))  # JSON is YAML
    assert guard.evaluate("search", {"query": "a password 0", "limit": 1, "page": 1}).decision != (
        "allow"
    )
    if method == "evaluate":
        return time_each(lambda call: guard.evaluate(call.tool, call.args).decision == "allow")
    guard.limits = OperationLimits(max_attempts=10**9, max_tool_calls=10**9)  # 500 and 200 else
    loop = asyncio.new_event_loop()

    async def run_calls(workload: list[Call]) -> Times:
        clock = time.perf_counter_ns
        elapsed = admitted = 0
        for call in workload:
            start = clock()
            try:
                await guard.run(call.tool, call.args, lambda call=call, **_: call.result)
                admitted += 1
            except EdictumDenied:
                pass
            elapsed += clock() - start
        return Times(elapsed, None, admitted)

    return lambda workload: loop.run_until_complete(run_calls(workload))


def _rules() -> dict[str, object]:
    return {
        "apiVersion": "edictum/v1",
        "kind": "Ruleset",
        "metadata": {"name": "benchmark"},
        "defaults": {"mode": "enforce"},
        "rules": [_rule(one) for one in rules(15)],
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "type": "pre",
        "tool": "search",
        "when": {f"args.{rule.argument}": {_OPERATORS[rule.op]: rule.value}},
        "then": {"action": "block", "message": "not this"},
    }


if __name__ == "__main__":
    serve("edictum", run(sys.argv[1]))
