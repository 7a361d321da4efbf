"""agent-os-kernel: its PolicyEvaluator over a document of rules."""

from __future__ import annotations

from agent_os.policies.evaluator import PolicyEvaluator
from agent_os.policies.schema import PolicyDocument

from benchmarks.peers.protocol import Run, serve, time_each
from benchmarks.rules import Rule, rules
from benchmarks.workload import Call

_OPERATORS = {"equals": "eq", "contains": "contains", "prefix": "matches", "above": "gt"}


def run() -> Run:
    document = PolicyDocument.model_validate(
        {"name": "benchmark", "rules": [_rule(one) for one in rules(15)]}
    )
    evaluator = PolicyEvaluator([document])
    assert not evaluator.evaluate({"tool_name": "search", "query": "a password 0 b"}).allowed
    return time_each(lambda call: evaluator.evaluate(_context(call)).allowed)


def _rule(rule: Rule) -> dict[str, object]:
    value = f"^{rule.value}" if rule.op == "prefix" else rule.value
    condition = {"field": rule.argument, "operator": _OPERATORS[rule.op], "value": value}
    return {"name": rule.id, "condition": condition, "action": "deny"}


def _context(call: Call) -> dict[str, object]:
    return {"tool_name": call.tool, **call.args}


if __name__ == "__main__":
    serve("agent_os_kernel", run())
