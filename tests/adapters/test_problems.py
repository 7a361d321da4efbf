"""What a program is told about a request that the service cannot read."""

from __future__ import annotations

import msgspec
import pytest

from policyguard.adapters.service.handlers import OPERATIONS
from policyguard.adapters.service.problems import describe_problem


def _problem(path: str, body: str) -> tuple[int, str]:
    request = next(one.request for one in OPERATIONS if one.path == path)
    with pytest.raises(msgspec.MsgspecError) as caught:
        msgspec.json.decode(body, type=request)
    problem = describe_problem(caught.value, request)
    return problem.status, problem.detail


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        (
            "/v1/check",
            '{"session": "s", "tool": "bash", "arguments": {}}',
            "unknown field `arguments`: did you mean `args`?",
        ),
        (
            "/v1/check",
            '{"session": "s", "name": "bash"}',
            "unknown field `name`: did you mean `tool`?",
        ),
        (
            "/v1/check",
            '{"session": "s", "tool": "bash", "agnt": ""}',
            "unknown field `agnt`: did you mean `agent`?",
        ),
        (
            "/v1/record",
            '{"session": "s", "call": "c", "output": ""}',
            "unknown field `output`: did you mean `result`?",
        ),
        (
            "/v1/spend",
            '{"session": "s", "zzz": 1}',
            "unknown field `zzz`: the fields are `session` (required)",
        ),
        (
            "/v1/check",
            '{"session": "s"}',
            "the required field `tool` is missing",
        ),
        ("/v1/check", '{"tool": "bash"}', "the required field `session` is missing"),
        ("/v1/check", '{"session": 1}', "`session` must be a text, not an integer"),
        (
            "/v1/check",
            '{"session": "s", "tool": "t", "roles": [1]}',
            "`roles[0]` must be a text, not an integer",
        ),
        (
            "/v1/record",
            '{"session": "s", "call": "c", "error": true}',
            "`error` must be a text or null, not true or false",
        ),
        ("/v1/check", "[]", 'not one JSON object such as {"session": …, "tool": …}'),
        ("/v1/check", "ls", 'not one JSON object such as {"session": …, "tool": …}'),
        ("/v1/record", "", 'not one JSON object such as {"session": …, "call": …}'),
    ],
)
def test_a_request_that_cannot_be_read(path: str, body: str, detail: str) -> None:
    status, found = _problem(path, body)
    assert status == 400
    assert detail in found
