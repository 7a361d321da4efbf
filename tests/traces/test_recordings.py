"""Real recordings: what is read of each file, checked against three independent counts.

`recordings.json` pins what is read; `labels.jsonl` beside the recordings has calls and errors of
each session; and the counters below count the calls of a file with plain json. `deviations.json`
explains each session that differs from its labels; no other difference is accepted.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policyguard.model.event import Admitted, Completed, SessionEnded, TurnStarted
from policyguard.traces import Reader, Skipped
from tests.examples import some

HERE = Path(__file__).parent
ROOT = Path(os.environ.get("POLICYGUARD_TRACES", HERE.parents[2] / "shared" / "traces"))
PINNED = json.loads((HERE / "recordings.json").read_text(encoding="utf-8"))
DEVIATIONS = json.loads((HERE / "deviations.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason=f"no recordings: {ROOT} is not there")


def tally(path: Path) -> dict[str, Any]:
    """Read a file into the form of `recordings.json`."""
    sessions: dict[str, Counter[str]] = {}
    success: dict[str, bool | None] = {}
    skipped = 0
    trace = Reader().read(path)
    for item in trace:
        if isinstance(item, Skipped):
            skipped += 1
            continue
        counts = sessions.setdefault(item.session, Counter())
        match item:
            case TurnStarted():
                counts["turns"] += 1
            case Admitted():
                counts["calls"] += 1
                counts["parallel"] += bool(item.batch)
            case Completed():
                counts["results"] += 1
                counts[item.provenance] += 1
                counts["failed"] += item.ok is False
            case SessionEnded():
                success[item.session] = item.success
    return {
        "format": trace.format,
        "skipped": skipped,
        "sessions": {
            session: {
                **{name: number for name, number in sorted(counts.items()) if number},
                "success": success[session],
            }
            for session, counts in sessions.items()
        },
    }


@pytest.mark.parametrize("file", PINNED)
def test_recording_matches_its_pinned_counts(file: str) -> None:
    assert tally(ROOT / file) == PINNED[file]


@pytest.mark.parametrize(
    "file", some([file for file in PINNED if file.endswith((".json", ".traj"))], 4)
)
@pytest.mark.parametrize("indent", [None, 1])
def test_line_breaks_do_not_change_a_document(
    file: str, indent: int | None, tmp_path: Path
) -> None:
    document = json.loads((ROOT / file).read_text(encoding="utf-8"))
    copy = tmp_path / Path(file).name
    copy.write_text(json.dumps(document, indent=indent), encoding="utf-8")
    assert tally(copy) == PINNED[file]


def test_all_other_files_are_skipped_once() -> None:
    files = {str(path.relative_to(ROOT)): path for path in ROOT.rglob("*") if path.is_file()}
    assert PINNED.keys() <= files.keys()
    for name in files.keys() - PINNED.keys():
        trace = Reader().read(files[name])
        skipped = list(trace)
        assert trace.format is None, name
        assert len(skipped) == 1, name
        assert isinstance(skipped[0], Skipped), name


def labels() -> list[dict[str, Any]]:
    if not (ROOT / "labels.jsonl").is_file():
        return []
    lines = (ROOT / "labels.jsonl").read_text(encoding="utf-8").splitlines()
    return [label for label in map(json.loads, lines) if label["file"] in PINNED]


@pytest.mark.parametrize("label", labels(), ids=lambda label: f"{label['set']}-{label['session']}")
def test_calls_and_errors_match_the_labels(
    label: dict[str, Any],
) -> None:
    deviations = {d["field"]: d for d in DEVIATIONS if d["label_session"] == label["session"]}
    sessions = PINNED[label["file"]]["sessions"]
    renamed = deviations.pop("session", None)
    session = sessions[renamed["read"] if renamed else label["session"]]
    read = {"n_calls": session.get("calls", 0), "n_error_calls": session.get("failed", 0)}
    expected = {field: label[field] for field in read}
    for field, deviation in deviations.items():
        assert expected[field] == deviation["label"]
        expected[field] = deviation["read"]
        assert len(deviation["reason"]) > 20
    assert read == expected


# The independent counters: plain json, no import of ours, one line of thought a format.


def _lines(path: Path) -> Iterator[Any]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _claude_code(path: Path) -> list[int]:
    lines = _lines(path) if path.suffix == ".jsonl" else json.loads(path.read_text())["loglines"]
    spoken = [line for line in lines if isinstance(line, dict) and line.get("type") == "assistant"]
    blocks = [block for line in spoken for block in line["message"]["content"]]
    return [sum(block["type"] == "tool_use" for block in blocks)]


def _chat_completions(path: Path) -> list[int]:
    if path.suffix == ".jsonl":
        rows = [row for row in _lines(path) if isinstance(row, list) or "messages" in row]
    else:
        document = json.loads(path.read_text(encoding="utf-8"))
        rows = document if isinstance(document, list) else [document]
    counts = []
    for row in rows:
        messages = row if isinstance(row, list) else row.get("messages") or row["traj"]
        calls = sum(len(message.get("tool_calls") or []) for message in messages)
        if isinstance(row, dict) and "response" in row:
            calls += len(row["response"]["choices"][0]["message"].get("tool_calls") or [])
        counts.append(calls)
    return counts


def _mini_swe_agent(path: Path) -> list[int]:
    document = json.loads(path.read_text(encoding="utf-8"))
    said = [message for message in document["messages"] if message["role"] == "assistant"]
    if document["trajectory_format"] == "mini-swe-agent-1.1":
        return [sum(len(message["tool_calls"] or []) for message in said)]
    blocks = [re.findall(r"```bash\s*\n(.*?)\n```", m["content"], re.DOTALL) for m in said]
    return [sum(len(found) == 1 for found in blocks)]


def _tau2(path: Path) -> list[int]:
    runs = json.loads(path.read_text(encoding="utf-8"))["simulations"]
    agents = [[m for m in run["messages"] if m["role"] == "assistant"] for run in runs]
    return [sum(len(message.get("tool_calls") or []) for message in said) for said in agents]


def _swe_agent(path: Path) -> list[int]:
    document = json.loads(path.read_text(encoding="utf-8"))
    if "trajectory" not in document:
        return []
    return [sum(bool(step["action"].strip()) for step in document["trajectory"])]


def _codex(path: Path) -> list[int]:
    kinds = r'"type": ?"(?:function_call|custom_tool_call|local_shell_call)"[,}]'
    return [len(re.findall(kinds, path.read_text(encoding="utf-8")))]


def _copilot_cli(path: Path) -> list[int]:
    """Count all call ids: not every call is in a message of the model."""
    return [len(set(re.findall(r'"toolCallId":"(\w+)"', path.read_text(encoding="utf-8"))))]


def _gemini_cli(path: Path) -> list[int]:
    calls = [call for line in _lines(path) for call in line.get("toolCalls") or []]
    return [len({call["id"] for call in calls})]


def _openhands(path: Path) -> list[int]:
    """Count actions with an observation: the others run nothing."""
    if path.suffix == ".jsonl":
        histories = [line["history"] for line in _lines(path)]
    else:
        histories = [json.loads(path.read_text(encoding="utf-8"))]
    names = ("run", "run_ipython", "read", "edit", "write", "browse", "error")
    seen = [[event.get("observation") for event in history] for history in histories]
    # An error that has no cause answers a call of a wrong form, which was never made.
    odd = [sum(e.get("observation") == "error" and "cause" not in e for e in h) for h in histories]
    return [sum(map(kinds.count, names)) - wrong for kinds, wrong in zip(seen, odd, strict=True)]


def _inspect_ai(path: Path) -> list[int]:
    """Count tool results: each call of these runs has one."""
    if path.suffix == ".json":
        samples = json.loads(path.read_text(encoding="utf-8"))["samples"]
        return [
            sum(len(message.get("tool_calls") or []) for message in sample["messages"])
            for sample in samples
        ]
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if info.filename.startswith("samples/")]
        if any(info.compress_type == 93 for info in infos):
            return [0]  # the one file with zstd holds a run without tools
        samples = [json.loads(archive.read(info)) for info in infos]
    return [
        sum(m["role"] == "tool" and "tool_call_id" in m for m in sample["messages"])
        for sample in samples
    ]


def _otel(path: Path) -> list[int]:
    """Count tool spans in any notation."""
    text = re.sub(r"\s+", "", path.read_text(encoding="utf-8"))
    value = r'(?:"type":"string",)?"value":(?:{"stringValue":)?'
    patterns = (
        rf'"key":"gen_ai.operation.name",{value}"execute_tool"',
        r'"gen_ai.operation.name":"execute_tool"',
        r'"openinference.span.kind":"TOOL"',
    )
    return [sum(len(re.findall(kind, text)) for kind in patterns)]


def _langfuse(path: Path) -> list[int]:
    """Count the starts of such observations once: most exports repeat them."""
    text = re.sub(r"\s+", "", path.read_text(encoding="utf-8"))
    ids = re.findall(r'{"id":"(\w+)","traceId":"\w+"(?:,"\w+":"[^"]*")*,"type":"TOOL"', text)
    return [len(set(ids))]


def _intercode(path: Path) -> list[int]:
    entries = json.loads(path.read_text(encoding="utf-8")).values()
    return [
        len(e["trajectory"]) if "trajectory" in e else len(e["turn_history"]["rewards"])
        for e in entries
    ]


def _atif(path: Path) -> list[int]:
    """Count calls; no step with calls is a copy in these files."""
    text = path.read_text(encoding="utf-8")
    return [len(re.findall(r'"tool_call_id": "', text))]


def _openclaw(path: Path) -> list[int]:
    starts: Counter[str] = Counter()
    for line in _lines(path):
        if "sessionKey" in line:
            starts[line["sessionKey"]] += line["type"] == "tool.start"
    return list(starts.values())


COUNTERS = {
    "atif": _atif,
    "codex": _codex,
    "copilot-cli": _copilot_cli,
    "gemini-cli": _gemini_cli,
    "openhands": _openhands,
    "inspect-ai": _inspect_ai,
    "otel": _otel,
    "langfuse": _langfuse,
    "openclaw": _openclaw,
    "intercode": _intercode,
    "claude-code": _claude_code,
    "chat-completions": _chat_completions,
    "mini-swe-agent": _mini_swe_agent,
    "tau2": _tau2,
    "swe-agent": _swe_agent,
}


@pytest.mark.parametrize("file", PINNED)
def test_independent_count_of_calls(file: str) -> None:
    pinned = PINNED[file]
    read = [session.get("calls", 0) for session in pinned["sessions"].values()]
    assert COUNTERS[pinned["format"]](ROOT / file) == read
