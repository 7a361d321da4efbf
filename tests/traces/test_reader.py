"""Files that cannot be read, disappear, or exceed the decoder's limits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from policyguard.model.event import SessionEnded, SessionStarted
from policyguard.traces import Item, Reader, Skipped


def skipped(path: Path) -> str:
    """Return the only reason why a file is skipped."""
    items = list(Reader().read(path))
    assert len(items) == 1
    assert isinstance(items[0], Skipped)
    assert items[0].file == str(path)
    assert items[0].line is None
    return items[0].reason


def test_folder_is_not_a_file(tmp_path: Path) -> None:
    assert skipped(tmp_path) == "not a regular file"


def test_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert skipped(tmp_path / "pipe") == "not a regular file"


def test_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert skipped(tmp_path / "gone.jsonl") == "cannot be read: No such file or directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_locked_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "secret.jsonl"
    path.write_text("{}")
    path.chmod(0)
    assert skipped(path) == "cannot be read: Permission denied"


def test_file_deleted_while_reading_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"event":"started","session":"s"}\n')
    trace = Reader().read(path)
    path.unlink()
    items: list[Item] = list(trace)
    assert items == [Skipped(str(path), None, "cannot be read: No such file or directory")]


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("text", ['[{"role":"user","content":%s}]', "[\n%s]"])
def test_deep_document_is_reported(tmp_path: Path, depth: int, text: str) -> None:
    path = tmp_path / "deep.json"
    path.write_text(text % ("[" * depth + "]" * depth))
    assert skipped(path) == "nested more than 200 levels deep"


def test_deep_line_costs_that_line_only(tmp_path: Path) -> None:
    deep = "[" * 5000 + "]" * 5000
    path = tmp_path / "run.jsonl"
    path.write_text(
        '{"event":"started","session":"s"}\n'
        f'{{"event":"admitted","session":"s","call":"c0","args":{{"a":{deep}}}}}\n'
        '{"event":"closed","session":"s"}\n'
    )
    first, second, third = Reader().read(path)
    assert isinstance(second, Skipped)
    assert second.line == 2
    assert not isinstance(first, Skipped)
    assert not isinstance(third, Skipped)


def test_deep_arguments_are_kept_as_text(tmp_path: Path) -> None:
    deep = '{"a":' * 300 + "1" + "}" * 300
    call = {"id": "c", "function": {"name": "f", "arguments": deep}}
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": "assistant", "tool_calls": [call]}]))
    admitted = list(Reader().read(path))[2]
    assert getattr(admitted, "args", None) == {"arguments": deep}


def test_deeply_nested_sub_agents(
    tmp_path: Path,
) -> None:
    step = {"source": "agent", "tool_calls": [{"tool_call_id": "c", "function_name": "f"}]}
    document: dict[str, object] = {"steps": [step]}
    for _ in range(97):
        document = {"steps": [step], "subagent_trajectories": [document]}
    path = tmp_path / "deep.json"
    path.write_text(json.dumps({"schema_version": "ATIF-v1.7", **document}))
    items = list(Reader().read(path))
    assert not any(isinstance(item, Skipped) for item in items)
    assert sum(type(item).__name__ == "Admitted" for item in items) == 98


def test_detection_ignores_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_text('{"event":"closed","session":"s"}')
    assert Reader().read(path).format == "policyguard"


def test_one_reader_reads_a_simulation_once(tmp_path: Path) -> None:
    path = tmp_path / "tau2.json"
    run = {"id": "sim-a", "messages": [{"role": "user", "content": "hi"}]}
    path.write_text(json.dumps({"simulations": [run]}))
    reader = Reader()
    assert [type(item).__name__ for item in reader.read(path)] == ["SessionStarted", "SessionEnded"]
    assert [type(item).__name__ for item in reader.read(path)] == ["Skipped"]
    assert [type(item).__name__ for item in Reader().read(path)] == [
        "SessionStarted",
        "SessionEnded",
    ]


@pytest.mark.parametrize(
    ("beside", "agent"),
    [
        ('{"tasks": [{}], "info": {"agent_info": {"implementation": "a"}}}', "a"),
        ('{"info": {"agent_info": {"implementation": 7}}}', ""),
        ('{"info": [', ""),
        ("[" * 100_000, ""),
        ('{"info": ' + "[" * 100_000, ""),
        ("\ud83d", ""),
        (None, ""),
    ],
    ids=["agent", "number", "cut", "list", "deep", "cut emoji", "none"],
)
def test_results_file_only_names_the_agent(tmp_path: Path, beside: str | None, agent: str) -> None:
    folder = tmp_path / "simulations"
    folder.mkdir()
    run = {"task_id": "1", "reward_info": {"reward": 1}, "messages": []}
    (folder / "s.json").write_text(json.dumps(run))
    if beside is None:
        os.mkfifo(tmp_path / "results.json")
    else:
        (tmp_path / "results.json").write_text(beside, errors="surrogatepass")
    started, closed = Reader().read(folder / "s.json")
    assert (started, closed) == (
        SessionStarted("s.json", agent=agent),
        SessionEnded("s.json", success=True),
    )
