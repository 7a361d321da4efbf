"""`policyguard traces`, as a person or a program would use it."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from policyguard.model.event import Admitted, Event, SessionEnded, SessionStarted
from policyguard.traces import Reader, Skipped
from policyguard.traces.importers import IMPORTERS
from tests.simulate.recording import START, lines, read, write

CASES = Path(__file__).parents[1] / "traces" / "cases"
DEMO = Path(__file__).parents[2] / "docs" / "demo" / "trace.jsonl"
CODEX = CASES / "codex_parallel_calls_and_all_kinds_of_end" / "input" / "rollout.jsonl"
CHAT = CASES / "chat_calls_without_ids" / "input" / "chat.json"


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["traces", *map(str, args)], catch_exceptions=False)


def counted(*args: str | Path) -> dict[str, Any]:
    result = run("stats", *args, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def events(path: Path) -> list[Event]:
    return [item for item in Reader().read(path) if not isinstance(item, Skipped)]


def test_stats_count_what_is_there() -> None:
    report = counted(CODEX, DEMO)
    assert [one["file"] for one in report["files"]] == [str(CODEX), str(DEMO)]
    codex = report["formats"][0]
    assert codex == {
        "format": "codex",
        "files": 1,
        "sessions": 1,
        "calls": 8,
        "results": 8,
        "timed": 8,
        "skipped": 0,
        "errors": {"explicit": 3, "inferred": 1, "unknown": 1},
        "calls_per_session": {"median": 8, "p90": 8, "p99": 8},
        "tools": [
            {"tool": "apply_patch", "calls": 2},
            {"tool": "exec_command", "calls": 2},
            {"tool": "local_shell", "calls": 1},
            {"tool": "mcp__docs__find", "calls": 1},
            {"tool": "update_plan", "calls": 1},
            {"tool": "view_image", "calls": 1},
        ],
    }
    own = report["formats"][1]
    assert own["format"] == "policyguard"
    for name in ("sessions", "calls", "results", "timed"):
        assert report["total"][name] == codex[name] + own[name]
    assert report["total"]["calls"] == 8 + 66


def test_calls_per_session_are_the_least_that_a_share_of_the_sessions_has(tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    call = '{"event":"admitted","session":"s%d","call":"c%d","tool":"t","args":{}}'
    trace.write_text("\n".join(call % (s, c) for s in range(1, 11) for c in range(s)))
    lengths = counted(trace)["total"]["calls_per_session"]
    assert lengths == {"median": 5, "p90": 9, "p99": 10}
    trace.write_text(call % (1, 1))
    lengths = counted(trace)["total"]["calls_per_session"]
    assert lengths == {"median": 1, "p90": 1, "p99": 1}


def test_refused_calls_are_calls_and_the_same_id_in_two_files_is_two_sessions(
    tmp_path: Path,
) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(
            '{"event":"refused","session":"s","call":"c","tool":"t","args":{},"at":1}'
        )
    total = counted(tmp_path)["total"]
    assert (total["sessions"], total["calls"], total["timed"], total["results"]) == (2, 2, 2, 0)


def test_only_the_tools_called_most_are_named(tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    line = '{"event":"admitted","session":"s","call":"%d-%d","tool":"t%02d","args":{}}'
    trace.write_text("\n".join(line % (t, c, t) for t in range(15) for c in range(t + 1)))
    tools = counted(trace)["total"]["tools"]
    assert [tool["tool"] for tool in tools] == [f"t{t:02d}" for t in range(14, 4, -1)]


def test_what_is_skipped_is_named_and_counted(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    rollout = CASES / "codex_unknown_lines_and_unmatched_result" / "input"
    report = counted(tmp_path, rollout)
    assert report["skips"][0] == {
        "file": str(tmp_path / "notes.txt"),
        "line": None,
        "reason": "not JSON",
    }
    assert report["files"][0]["format"] is None
    assert report["total"]["skipped"] == len(report["skips"]) == 5
    shown = run("stats", tmp_path, rollout)
    assert "notes.txt: not JSON" in shown.stdout
    assert "rollout.jsonl:7: broken JSON" in shown.stdout


def test_help_names_each_format() -> None:
    words = run("--help").stdout.replace(",", " ").replace(".", " ").split()
    assert {importer.FORMAT for importer in IMPORTERS} <= set(words)


def test_text_has_a_row_for_each_format_and_file(tmp_path: Path) -> None:
    archive = tmp_path / "runs.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a/codex.jsonl", CODEX.read_bytes())
        file.writestr("chat.json.gz", gzip.compress(CHAT.read_bytes()))
    lines = run("stats", archive).stdout.splitlines()
    rows = {line.rsplit("  ", 1)[-1].strip(): line.split()[:11] for line in lines}
    assert rows["codex (1)"] == ["1", "8", "8", "8", "8", "8", "3", "1", "1", "8", "0"]
    assert rows["all"][0] == "2"
    assert rows[f"{archive}/a/codex.jsonl"] == rows["codex (1)"]
    assert f"{archive}/chat.json.gz" in rows
    assert any("codex: apply_patch 2, exec_command 2" in line for line in lines)


def test_long_lists_of_what_is_skipped_are_cut_in_text_only(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"{number:02d}.txt").write_text("hello")
    result = run("stats", tmp_path)
    assert result.stdout.count("not JSON") == 20
    assert "and 5 more: --format json lists all" in result.stdout
    assert result.exit_code == 2
    assert "none of the files is a trace" in result.stderr
    listed = run("stats", tmp_path, "--format", "json")
    assert listed.exit_code == 2
    assert len(json.loads(listed.stdout)["skips"]) == 25


def test_hostile_text_cannot_reach_the_terminal(tmp_path: Path) -> None:
    trace = tmp_path / "run\x1b[2J.jsonl"
    trace.write_text('{"event":"admitted","session":"s","call":"c","tool":"\\u001b]0;x","args":{}}')
    assert "\x1b" not in run("stats", trace).stdout
    chat = tmp_path / "chat.json"
    chat.write_text('[{"role":"tool","tool_call_id":"\\u001b[2J"},{"role":"user"}]')
    result = run("convert", chat, "-o", tmp_path / "out.jsonl")
    assert "\x1b" not in result.stderr
    assert "a result for unknown call" in result.stderr


@pytest.mark.parametrize(
    "path",
    sorted(path for path in CASES.rglob("input/*") if path.is_file()),
    ids=lambda path: f"{path.parts[-3]}-{path.name}",
)
def test_what_is_converted_is_read_back_as_the_same_events(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = run("convert", path, "-o", out)
    before = events(path)
    assert result.exit_code == (0 if before else 1)
    trace = Reader().read(out)
    after = [item for item in trace if not isinstance(item, Skipped)]
    assert {start.source for start in starts(after)} <= {str(path)}
    assert without_sources(after) == before
    assert trace.format == ("policyguard" if before else None)
    assert f"{len(before)} events written" in result.stderr


def starts(items: Iterable[Event]) -> list[SessionStarted]:
    return [item for item in items if isinstance(item, SessionStarted)]


def without_sources(items: Iterable[Event]) -> list[Event]:
    return [
        msgspec.structs.replace(item, source="") if isinstance(item, SessionStarted) else item
        for item in items
    ]


def test_sessions_of_the_same_id_get_their_own(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "chat.json").write_bytes(CHAT.read_bytes())
    (tmp_path / "d.jsonl").write_text('{"event":"started","session":"chat.json#1"}\n')
    out = tmp_path / "out.jsonl"
    files = [tmp_path / name for name in ("d.jsonl", "a/chat.json", "b/chat.json", "c/chat.json")]
    result = run("convert", *files, "-o", out)
    read = events(out)
    names = ["chat.json#1", "chat.json", "chat.json#2", "chat.json#3"]
    assert [start.session for start in starts(read)] == names
    assert [start.source for start in starts(read)] == list(map(str, files))
    plain = events(CHAT)
    assert without_sources(event for event in read if event.session == "chat.json") == plain
    assert sum(event.session == "chat.json#3" for event in read) == len(plain)
    assert f"session `chat.json` of {files[2]} becomes `chat.json#2`" in result.stderr


def test_standard_output_has_the_events_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    result = run("convert", CHAT, tmp_path / "notes.txt", "-o", "-")
    assert json.loads(result.stdout.splitlines()[0])["event"] == "started"
    assert "skipped" in result.stderr
    assert "notes.txt: not JSON" in result.stderr


def test_an_input_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_bytes(CHAT.read_bytes())
    result = run("convert", tmp_path, "-o", path)
    assert result.exit_code == 2
    assert f"`{path}` is also an input" in result.stderr
    assert path.read_bytes() == CHAT.read_bytes()


def test_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    result = run("convert", CHAT, "-o", tmp_path / "no" / "out.jsonl")
    assert result.exit_code == 2
    assert "cannot be written: folder" in result.stderr


def test_where_nothing_is_converted_the_output_stays_what_it_was(tmp_path: Path) -> None:
    notes, good, new = tmp_path / "notes.txt", tmp_path / "good.jsonl", tmp_path / "new.jsonl"
    notes.write_text("hello")
    good.write_text("good\n")
    assert run("convert", notes, "-o", good).exit_code == 1
    assert good.read_text() == "good\n"
    result = run("convert", notes, "-o", new)
    assert result.exit_code == 1
    assert "0 events written, 1 skipped" in result.stderr
    assert not new.exists()


@pytest.mark.parametrize("command", [["stats"], ["convert", "-o", "-"]])
def test_a_path_of_nothing_is_misuse(tmp_path: Path, command: list[str]) -> None:
    result = run(*command, tmp_path / "nowhere.jsonl")
    assert result.exit_code == 2
    assert f"policyguard traces {command[0]}: no such file" in result.stderr


def test_a_converted_file_ends_each_session(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run("convert", CODEX, CHAT, "-o", out)
    assert sum(isinstance(event, SessionEnded) for event in events(out)) == 2


def test_links_in_a_circle_are_passed_over_with_a_word(tmp_path: Path) -> None:
    circle = tmp_path / "circle.jsonl"
    circle.symlink_to(circle)
    (tmp_path / "trace.jsonl").write_bytes(DEMO.read_bytes())
    kinds = "circle.jsonl: cannot be read: Too many levels of symbolic links"
    assert kinds in run("stats", tmp_path).output
    for command in ("simulate", "suggest --max-harm 0.1", "traces convert"):
        given = [*command.split(), str(tmp_path), "-o"]
        result = CliRunner().invoke(main, [*given, str(tmp_path / "out")], catch_exceptions=False)
        assert result.exit_code in (0, 1, 2)
        over = [*given, str(tmp_path / "trace.jsonl")]
        result = CliRunner().invoke(main, over, catch_exceptions=False)
        assert result.exit_code == 2
        assert "is also an input" in result.output


def test_sub_agents_are_put_among_their_parents_under_the_names_these_have(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "1.jsonl", lines("child", [read("/x")], parent="main"))
        write(tmp_path / folder / "2.jsonl", lines("main", [read("/y")] * 2, closed=False))
    out = tmp_path / "out.jsonl"
    assert run("convert", tmp_path / "a", tmp_path / "b", "-o", out).exit_code == 0
    starts = [event for event in events(out) if isinstance(event, SessionStarted)]
    assert [(event.session, event.parent) for event in starts] == [
        ("main", ""), ("child", "main"), ("main#1", ""), ("child#1", "main#1"),
    ]  # fmt: skip
    assert [event.at for event in starts] == [START] * 4
    # At the same time what a sub-agent does goes before what its parent does.
    kinds = [(event.session, type(event)) for event in events(out)]
    second = [index for index, one in enumerate(kinds) if one == ("main", Admitted)][1]
    assert kinds.index(("child", SessionEnded)) < second
