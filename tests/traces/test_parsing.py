"""Parsing of single fields: commands, times, amounts, arguments, contents."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.traces.formats.codex.results import CallEnd, parse_end, parse_result
from policyguard.traces.formats.mini_swe_agent import find_command
from policyguard.traces.parsing.measurements import (
    count_tokens,
    from_iso,
    from_milliseconds,
    from_seconds,
    read_cost,
)
from policyguard.traces.parsing.message_content import as_arguments, as_text

PIECES = ("```", "bash", "```bash", "\n", "\n```", " ", "\t", "ls", "rc", "\r\n", "\x85")


def find_like_the_agent(text: str) -> str | None:
    """Apply the regex of mini-swe-agent 1."""
    found = re.findall(r"```bash\s*\n(.*?)\n```", text, re.DOTALL)
    return found[0].strip() if len(found) == 1 else None


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_command_matches_the_agents_regex(text: str) -> None:
    assert find_command(text, "bash") == find_like_the_agent(text)


@pytest.mark.parametrize(
    "text",
    ["```bash\n" * 100_000, "```bash" + "\n" * 500_000, ("```bash" + " " * 50) * 20_000],
    ids=["openings", "line ends", "spaces"],
)
def test_finding_commands_takes_linear_time(text: str) -> None:
    assert find_command(text, "bash") is None


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("2025-12-24T10:00:00.123456Z", 1_766_570_400_123_456_000),
        ("2025-12-24T12:00:00+02:00", 1_766_570_400_000_000_000),
        ("2025-12-24T10:00:00", 1_766_570_400_000_000_000),
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59-23:00", 253402383599_000_000_000),
        ("0001-01-01T00:00:00+23:00", None),
        ("yesterday", None),
        ("", None),
        (1_766_570_400, None),
        (None, None),
    ],
)
def test_iso_times(text: object, nanoseconds: int | None) -> None:
    assert from_iso(text) == nanoseconds


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"),
    [
        (0, 0),
        (1776227627.4157827, 1_776_227_627_415_783_000),
        (-1, None),
        (10**30, None),
        (True, None),
        ("1776227627", None),
    ],
)
def test_times_in_seconds(seconds: object, nanoseconds: int | None) -> None:
    assert from_seconds(seconds) == nanoseconds


@pytest.mark.parametrize(
    ("milliseconds", "nanoseconds"),
    [
        (0, 0),
        (1_772_831_323_758, 1_772_831_323_758_000_000),
        (1.5, 1_500_000),
        (-1, None),
        (1e15, None),
        (10**400, None),
        (True, None),
        ("1772831323758", None),
    ],
)
def test_times_in_milliseconds(milliseconds: object, nanoseconds: int | None) -> None:
    assert from_milliseconds(milliseconds) == nanoseconds


@pytest.mark.parametrize(
    ("counts", "tokens"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}, 120),
        ({"prompt_tokens": 9, "completion_tokens": 1, "input_tokens": 9, "output_tokens": 1}, 10),
        ({"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 1000}, 1007),
        ({"prompt_tokens": -5, "completion_tokens": "many"}, 0),
        ({"prompt_tokens": 10**400}, 0),
        (None, 0),
        ([], 0),
    ],
)
def test_tokens(counts: object, tokens: int) -> None:
    assert count_tokens(counts) == tokens


@pytest.mark.parametrize(("value", "cost"), [(0.25, 0.25), (1, 1.0), (-1, 0.0), (None, 0.0)])
def test_cost(value: object, cost: float) -> None:
    assert read_cost(value) == cost


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        (None, {}),
        ("", {}),
        ('{"a": 1', {"arguments": '{"a": 1'}),
        ("[1]", {"arguments": "[1]"}),
        ("ls -la", {"arguments": "ls -la"}),
        ([1], {"arguments": [1]}),
        ('{"a": NaN}', {"a": None}),
    ],
)
def test_arguments(raw: object, arguments: dict[str, object]) -> None:
    assert as_arguments(raw) == arguments


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "image", "source": {}}, "b"], "a\n[image]\nb"),
        ([{}, 7], "{}\n7"),
        ([{"name": "a"}, {"url": "b", "title": "c"}], '{"name":"a"}\n{"url":"b","title":"c"}'),
        ([{"type": "image", "data": "test"}], "[image 4d967a30111b]"),
        ({"code": 7}, '{"code":7}'),
    ],
)
def test_contents(content: object, text: str) -> None:
    assert as_text(content) == text


PICTURES: tuple[Callable[[str], dict[str, object]], ...] = (
    lambda data: {"type": "image", "source": {"type": "base64", "data": data}},
    lambda data: {"type": "image_url", "image_url": {"url": data}},
    lambda data: {"type": "input_image", "image_url": data},
    lambda data: {"type": "image", "image": data, "detail": "auto"},
    lambda data: {"type": "image", "data": data, "mimeType": "image/png"},
    lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    lambda data: {"type": "file", "file": {"file_data": data}},
    lambda data: {"type": "computer_screenshot", "file_id": data},
    lambda data: {"image": {"format": "png", "source": {"bytes": data}}},
    lambda data: {"inlineData": {"mimeType": "image/png", "data": data}},
)
"""Blocks without text, one per API."""

DATA = st.text("0123456789ABCDEF+/=", min_size=20)


@given(st.sampled_from(PICTURES), DATA, DATA)
def test_pictures_become_digests(
    block: Callable[[str], dict[str, object]], one: str, other: str
) -> None:
    texts = [as_text([block(data)]) for data in (one, other)]
    assert (texts[0] == texts[1]) == (one == other)
    assert all(re.fullmatch(r"\[\w+ [0-9a-f]{12}\]", text) for text in texts)


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        ({"type": "exec_command_end", "exit_code": 0}, CallEnd(ok=True, exit_code=0)),
        ({"type": "exec_command_end", "exit_code": 3}, CallEnd(ok=False, exit_code=3)),
        ({"type": "exec_command_end", "exit_code": True}, None),
        ({"type": "exec_command_end", "exit_code": 2**70}, None),
        ({"type": "patch_apply_end", "success": False}, CallEnd(ok=False)),
        ({"type": "patch_apply_end", "success": "yes"}, None),
        ({"type": "mcp_tool_call_end", "result": {"Ok": {"is_error": True}}}, CallEnd(ok=False)),
        ({"type": "mcp_tool_call_end", "result": {"Ok": {"content": []}}}, CallEnd(ok=True)),
        ({"type": "mcp_tool_call_end", "result": {"Err": "gone"}}, CallEnd(ok=False)),
        ({"type": "mcp_tool_call_end"}, None),
        ({"type": "agent_message"}, None),
    ],
)
def test_codex_call_ends(event: dict[str, object], outcome: CallEnd | None) -> None:
    assert parse_end(event) == outcome


@pytest.mark.parametrize(
    ("output", "ok", "known", "code"),
    [
        ("Exit code: 1\nWall time: 0.1 seconds\nOutput:\nx", False, "explicit", 1),
        (
            "Wall time: 0.1 seconds\nProcess running with session ID 4\nOutput:\n",
            None,
            "unknown",
            None,
        ),
        ("Wall time: 1 seconds\nOutput:\nExit code: 1", None, "unknown", None),
        ("my words: Process exited with code 1", None, "unknown", None),
        ("patch rejected: empty patch", False, "inferred", None),
        ('{"output": "x", "metadata": {"exit_code": 0}}', True, "explicit", 0),
        ('{"output": "x", "metadata": {}}', None, "unknown", None),
        ('{"output": ', None, "unknown", None),
        (None, None, "unknown", None),
    ],
)
def test_codex_outputs(output: object, ok: bool | None, known: str, code: int | None) -> None:
    read = parse_result({"call_id": "c", "output": output}, None, None)
    assert (read.ok, read.provenance, read.exit_code) == (ok, known, code)


@pytest.mark.parametrize(
    "text",
    [
        "Command: " + "Wall time: 1 seconds\n" * 100_000,
        "Command: x\n" * 100_000,
        "Chunk ID: 1\n" + "\n" * 1_000_000,
    ],
    ids=["headers", "commands", "line ends"],
)
def test_parsing_codex_outputs_takes_linear_time(text: str) -> None:
    assert parse_result({"output": text}, None, None).text == text
