"""cedarpy: policies parsed once, a request for each call."""

from __future__ import annotations

import json

import cedarpy

from benchmarks.peers.protocol import Run, serve, time_each
from benchmarks.rules import Rule, rules
from benchmarks.workload import Call


def run() -> Run:
    text = "permit(principal, action, resource);\n" + "\n".join(map(_policy, rules(15)))
    policies = cedarpy.PolicySet.from_str(text)
    entities = cedarpy.Entities.from_json_str("[]")
    principal, resource = 'Agent::"a"', 'Host::"h"'

    def check(call: Call) -> bool:
        request = {
            "principal": principal,
            "action": f'Action::"{call.tool}"',
            "resource": resource,
            "context": call.args,
        }
        return cedarpy.is_authorized(request, policies, entities).allowed

    refused = {"query": "a password 0", "limit": 1, "page": 1}
    assert not check(Call("search", refused, "", None))
    return time_each(check)


def _policy(rule: Rule) -> str:
    subject, value = f"context.{rule.argument}", rule.value
    condition = {
        "equals": f"{subject} == {json.dumps(value)}",
        "contains": f"{subject} like {json.dumps(f'*{value}*')}",
        "prefix": f"{subject} like {json.dumps(f'{value}*')}",
        "above": f"{subject} > {value}",
    }[rule.op]
    return f'forbid(principal, action == Action::"search", resource) when {{ {condition} }};'


if __name__ == "__main__":
    serve("cedarpy", run())
