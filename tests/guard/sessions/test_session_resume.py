"""A session with a store is journalled, verifiable and resumable."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard import Guard, PolicyError
from policyguard.cli import main
from policyguard.store.errors import SessionBusyError

POLICY = """
policyguard: 1
name: journalled
classify:
  classes: [{class: edit, tools: [edit]}, {class: look, tools: ["*"]}]
  state_changing: [edit]
signatures: [{id: wrong, pattern: wrong, blame: agent}]
limits: {default: {repeat: {max: 3, same: call_and_result}}}
budgets: {calls: {calls: 6}, spend: {cost: 1.0}}
learn: {corroborate: 2, scope: session}
"""


def _guard(folder: Path, extra: str = "") -> Guard:
    file = folder / "policy.yaml"
    file.write_text(POLICY + extra)
    return Guard.load(file, store=folder / "state" / "store.db")


def test_session_resumes_where_another_process_stopped(tmp_path: Path) -> None:
    first = _guard(tmp_path)
    session = first.session("s", agent="a")
    for _ in range(2):
        session.record(session.check("read", {"path": "x"}), result="same", cost=0.2)
    session.record(session.check("build", {}), error="wrong way")
    before = session.guard._state.evaluator_state.sessions["s"].cel_session
    first._open_sessions.remove("s")  # as if the process had died
    first._journal.close()

    second = _guard(tmp_path).session("s")
    after = second.guard._state.evaluator_state.sessions["s"].cel_session
    assert {**after, "running": 0} == {**before, "running": 0}
    assert second.check("read", {"path": "x"}).id == "c4"
    second.record("c4", result="same")
    assert second.check("read", {"path": "x"}).violations[0].reason == "repeat"
    second.record(second.check("build", {}), error="wrong way")
    refused = second.check("build", {})
    assert refused.violations[0].reason == "learned"
    assert second.check("other", {}).allowed
    assert second.check("another", {}).violations[0].id == "budgets/calls"


@pytest.mark.parametrize(
    ("result", "is_changed"), [("done", True), ("started job 7", False), (None, False)]
)
def test_a_change_before_a_restart_is_one_after_it(
    tmp_path: Path, result: str | None, is_changed: bool
) -> None:
    """A pending one, or a failed one, is none."""
    extra = 'outcomes: {envelope: [{state: pending, pattern: "^started"}]}\n'
    with _guard(tmp_path, extra) as guard:
        session = guard.session("s")
        for _ in range(3):
            session.record(session.check("read"), result="same")
        error = "no" if result is None else None
        session.record(session.check("edit"), result=result, error=error)
    with _guard(tmp_path, extra) as guard:
        assert guard.session("s").check("read").allowed is is_changed


def test_a_result_that_comes_after_a_restart_is_compared(tmp_path: Path) -> None:
    """Also in other words than the result before."""
    allowed = []
    for number in range(6):
        with Guard.load("core", store=tmp_path / "store.db") as guard:
            decision = guard.session("s").check("bash", {"command": "pytest"})
        allowed.append(decision.allowed)
        if decision:
            with Guard.load("core", store=tmp_path / "store.db") as guard:
                guard.session("s").record(decision.id, result=f"3 passed in 0.{number}1s")
    assert allowed == [True] * 5 + [False]


def test_session_belongs_to_one_process(tmp_path: Path) -> None:
    first = _guard(tmp_path)
    session = first.session("s")
    with pytest.raises(SessionBusyError):
        _guard(tmp_path).session("s")
    session.end()
    assert _guard(tmp_path).session("s").check("x").id == "c1"


def test_journal_verifies_hides_arguments_and_can_be_simulated(tmp_path: Path) -> None:
    guard = _guard(tmp_path, "journal: {args: hash, results: drop}\n")
    session = guard.session("s")
    session.record(session.check("read", {"path": "/home/ann/secret"}), result="the secret")
    session.turn()
    session.end()
    (file,) = (tmp_path / "state" / "journal").iterdir()
    assert "secret" not in file.read_text()
    assert '"effect"' not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    runner = CliRunner()
    store = ["--store", str(tmp_path / "state" / "store.db")]
    assert runner.invoke(main, ["journal", "verify", str(file), *store]).exit_code == 0
    simulated = runner.invoke(main, ["simulate", str(file), "--policy", "core", "--format", "json"])
    report = json.loads(simulated.stdout)
    assert report["traces"]["calls"] == 1
    assert report["traces"]["hidden"] == {"args": 1, "results": 1}
    file.write_text(file.read_text().replace('"read"', '"rEad"'))
    assert runner.invoke(main, ["journal", "verify", str(file), *store]).exit_code == 1


def test_constraints_are_anchored_at_once_and_evidence_later(tmp_path: Path) -> None:
    guard = _guard(tmp_path)
    session = guard.session("s")
    file = guard._journal.path_of("s")

    def unanchored() -> int:
        anchor = guard._constraint_sync.store.anchors.get("s")
        return len(file.read_bytes().splitlines()) - (anchor.count if anchor is not None else 0)

    session.turn()
    assert unanchored() == 0
    assert not session.record(session.check("build", {}), error="wrong way").learned
    assert unanchored() == 2
    assert session.record(session.check("build", {}), error="wrong way").learned
    assert unanchored() == 0
    session.record(session.check("read", {"path": "x"}), result="fine")
    assert unanchored() == 2


@pytest.mark.parametrize("result_chars", ["", "result_chars: 4"])
def test_hashed_values_are_fingerprints(tmp_path: Path, result_chars: str) -> None:
    policy = POLICY.replace(
        "classify:", f"classify:\n  fingerprint: {{ignore: [at], {result_chars}}}"
    )
    (tmp_path / "policy.yaml").write_text(policy)
    guard = Guard.load(tmp_path / "policy.yaml", store=tmp_path / "state" / "store.db")
    session = guard.session("s")
    for index, (path, result) in enumerate([("x", "same"), ("x", "same as this"), ("y", "same")]):
        decision = session.check("read", {"path": path, "at": index})
        session.record(decision, result=result)
    lines = [json.loads(line) for line in guard._journal.path_of("s").read_text().splitlines()]
    calls = [line for line in lines if line["event"] == "admitted"]
    assert [call["args"] for call in calls] == [{"#": f"#{call['fingerprint']}"} for call in calls]
    assert calls[0]["args"] == calls[1]["args"] != calls[2]["args"]
    texts = [line["text"] for line in lines if line["event"] == "completed"]
    assert texts[0] == texts[2] != texts[1]
    assert len({line["result_fingerprint"] for line in lines if "text" in line}) == 2 - bool(
        result_chars
    )


def test_learned_constraints_hide_arguments(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("""
policyguard: 1
name: hidden
classify: {targets: [path]}
signatures:
  - {id: lost, pattern: lost, blame: agent, learn: {ban: target, corroborate: 1}}
  - {id: oom, pattern: oom, blame: agent}
limits: {default: {repeat: {max: 5, same: target}}}
budgets: {each: {calls: 5, per: [session, call.args.path]}}
learn: {corroborate: 1, scope_key: call.args.where, parameters: {oom: {of: [size], direction: up}}}
""")
    guard = Guard.load(tmp_path / "policy.yaml", store=tmp_path / "state" / "store.db")
    session = guard.session("s")
    session.record(
        session.check("read", {"path": "my-secret", "size": 1, "where": "my-place"}),
        error="lost my-secret",
    )
    session.record(
        session.check("fit", {"path": "my-other", "size": 424242, "where": "my-place"}), error="oom"
    )
    assert not session.check("read", {"path": "my-secret", "where": "my-place"}).allowed
    assert not session.check("fit", {"path": "x", "size": 500000, "where": "my-place"}).allowed
    assert session.check("fit", {"path": "x", "size": 500000, "where": "elsewhere"}).allowed
    assert {one.label for one in guard.constraints()} == {"my-secret", ""}
    session.end()
    (file,) = (tmp_path / "state" / "journal").iterdir()
    journal_text = file.read_text()
    for secret in ("my-secret", "my-other", "424242", "my-place"):
        assert secret not in journal_text
    guard.close()
    assert b"my-place" not in (tmp_path / "state" / "store.db").read_bytes()


@pytest.mark.parametrize("args", ["keep", "mask", "hash", "drop"])
@pytest.mark.parametrize(
    ("learn", "without_arguments"),
    [
        ("ban: call", True),
        ("ban: tool", True),
        ("ban: target", False),
        ("key: call.args.path", False),
        ("ban: tool, scope_key: call.args.path", False),
        ("parameters: {lost: {of: [n], direction: up}}", False),
    ],
)
@pytest.mark.parametrize("error", ["lost", None])
def test_redacted_arguments_teach_nothing_after_resuming(
    tmp_path: Path, args: str, learn: str, without_arguments: bool, error: str | None
) -> None:
    (tmp_path / "policy.yaml").write_text(f"""
policyguard: 1
name: hidden
classify: {{targets: [path]}}
signatures: [{{id: lost, pattern: lost, blame: agent}}]
journal: {{args: {args}}}
learn: {{corroborate: 1, {learn}}}
""")

    def load() -> Guard:
        return Guard.load(tmp_path / "policy.yaml", store=tmp_path / "state" / "store.db")

    with load() as guard:
        session = guard.session("s")
        session.record(session.check("move", {"path": "b", "n": 9}), error="lost")
        decision = session.check("read", {"path": "a", "n": 1})
        count_before = len(guard.constraints())
    with load() as guard:
        session = guard.session("s")
        recorded = session.record(decision.id, result="found", error=error)
        assert recorded.counted
        expect_learned = error is not None and (without_arguments or args == "keep")
        assert len(guard.constraints()) == count_before + expect_learned
        messages = [error.error for error in recorded.errors]
        assert [bool(message) for message in messages] == (
            [] if without_arguments or args == "keep" else [True]
        )
        assert all("the journal keeps none" in message for message in messages)
        assert session.check("read", {"path": "a", "n": 1}).allowed is not expect_learned


@pytest.mark.parametrize("args", ["keep", "hash", "mask", "drop"])
@pytest.mark.parametrize(
    "condition",
    [
        "has(call.args.to)",
        "'to' in call.args",
        "size(call.args) > 0",
        "call.args != {}",
        "call.args.exists(name, name == 'to')",
        "has(call['args'].to)",
        "size(call.strings) > 0",
        "size(call.targets) > 0",
        "!has(call.previous.to)",
    ],
)
def test_a_condition_over_redacted_arguments_fails_after_resuming(
    tmp_path: Path, args: str, condition: str
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        f"policyguard: 1\nname: resumed\njournal: {{args: {args}}}\nclassify: {{targets: [to]}}\n"
        f'budgets: {{sent: {{calls: 1, when: "outcome.ok && {condition}"}}}}\n'
    )
    recorded = []
    for session_id, result in (("sent", {"result": "sent"}), ("failed", {"error": "no"})):
        with Guard.load(file, store=tmp_path / "store.db") as guard:
            guard.session(session_id).check("send", {"to": "you"})
        with Guard.load(file, store=tmp_path / "store.db") as guard:
            session = guard.session(session_id)
            recorded.append(session.record("c1", **result))
            assert session.check("send", {"to": "me"}).allowed is (session_id == "failed")
    assert [error.id for error in recorded[0].errors] == ["budgets/sent"] * (args != "keep")
    assert not recorded[1].errors


def test_kept_arguments_can_be_simulated(tmp_path: Path) -> None:
    guard = _guard(tmp_path, "journal: {args: keep, results: keep}\n")
    session = guard.session("s")
    for _ in range(3):
        session.record(session.check("read", {"path": "x"}), result="same")
    session.check("read", {"path": "x"})
    session.end()
    simulated = CliRunner().invoke(
        main,
        ["simulate", str(tmp_path / "state" / "journal"), "--policy", str(tmp_path / "policy.yaml"),
         "--format", "json"],
    )  # fmt: skip
    (session_report,) = json.loads(simulated.stdout)["sessions"]
    assert (session_report["id"], session_report["calls"], session_report["first_refusal"]) == (
        "s",
        4,
        3,
    )


@pytest.mark.parametrize(("mode", "allowed"), [("block", False), ("allow", True)])
def test_unwritable_journal_is_handled_as_configured(
    tmp_path: Path, mode: str, allowed: bool
) -> None:
    guard = _guard(tmp_path, f"on_internal_error: {mode}\n")
    session = guard.session("s")
    assert guard._journal is not None
    guard._journal.close()
    path = guard._journal.path_of("s")
    moved_file = path.rename(path.with_suffix(".aside"))
    path.mkdir()  # blocks the file
    decision = session.check("read", {"path": "x"})
    assert decision.allowed is allowed
    assert decision.errors[-1].id == "journal"
    assert str(path) in decision.errors[-1].error
    path.rmdir()
    moved_file.rename(path)
    assert [session.check("free", {"n": number}).allowed for number in range(5)] == [True] * 5


def test_number_of_an_unwritten_call_is_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = _guard(tmp_path)
    session = guard.session("s")
    session.record(session.check("read", {"n": 1}))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", _raise_disk_full)
        assert session.check("read", {"n": 2}).id == "c2"
    session.record(session.check("read", {"n": 3}))
    guard.close()
    assert _guard(tmp_path).session("s").check("read", {"n": 4}).id == "c4"


@pytest.mark.parametrize("name", [os.fsdecode(b"caf\xe9"), "a\x1fb", "a\x1eb"], ids=ascii)
@pytest.mark.parametrize("per", ["agent", "user", "project", "session", "turn"])
def test_usage_of_owners_with_unusual_names_is_restored(
    tmp_path: Path, per: str, name: str
) -> None:
    """A folder name may not be UTF-8; Python represents its bytes as lone surrogates."""
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: odd\nbudgets: {{all: {{calls: 2, per: {per}}}}}\n")
    allowed = []
    for number in range(3):
        with Guard.load(file, store=tmp_path / "store.db") as guard:
            session = guard.session(name, agent=name, user=name, project=name)
            allowed.append(session.check("read", {"n": number}).allowed)
    assert allowed == [True, True, False]


def _raise_disk_full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_killed_process_loses_no_admitted_call(tmp_path: Path) -> None:
    _guard(tmp_path)
    script = """
import os, sys
from policyguard import Guard
session = Guard.load(sys.argv[1], store=sys.argv[2]).session("s")
for number in range(1000):
    decision = session.check("read", {"n": number})
    if not decision.allowed:
        os.kill(os.getpid(), 9)
    print(decision.id, flush=True)
"""
    policy, store = tmp_path / "policy.yaml", tmp_path / "state" / "store.db"
    process = subprocess.run(
        [sys.executable, "-c", script, policy, store], capture_output=True, text=True, check=False
    )
    assert process.returncode == -9, process.stderr
    admitted = process.stdout.split()
    assert len(admitted) == 6
    session = _guard(tmp_path).session("s")
    assert session.check("read", {"n": -1}).violations[0].id == "budgets/calls"


def test_more_sessions_than_open_files_allowed(tmp_path: Path) -> None:
    _guard(tmp_path)
    script = """
import os, resource, sys
from policyguard import Guard
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
guard = Guard.load(sys.argv[1], store=sys.argv[2])
sessions = [guard.session(f"s{number}") for number in range(100)]
for turn in range(2):
    decisions = [session.check("read", {"n": turn}) for session in sessions]
    assert all(decision.allowed for decision in decisions), decisions
for number in range(20):
    os.dup(0)  # the host has files of its own
"""
    policy, store = tmp_path / "policy.yaml", tmp_path / "state" / "store.db"
    process = subprocess.run(
        [sys.executable, "-c", script, policy, store], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


def test_session_cap_does_not_delete_journals(tmp_path: Path) -> None:
    extra = "journal: {keep_for: 30d}\nbounds: {sessions: 3}\n"
    guard = _guard(tmp_path, extra)
    for number in range(8):
        session = guard.session(f"run-{number}")
        session.check("x")
        session.end()
    guard.close()
    guard = _guard(tmp_path, extra)
    files = sorted((tmp_path / "state" / "journal").iterdir())
    assert len(files) == 8
    files[0].unlink()
    files[2].write_bytes(files[2].read_bytes().splitlines(keepends=True)[0])
    store = str(tmp_path / "state" / "store.db")
    result = CliRunner().invoke(main, ["journal", "verify", "--store", store])
    assert result.exit_code == 1
    assert "journal/missing-file" in result.stdout
    assert "journal/cut-tail" in result.stdout


def test_redaction_pattern_must_exist(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no pattern named `secret_`"):
        _guard(tmp_path, "patterns: {secrets: key}\njournal: {redact: [secret_]}\n")
    guard = _guard(
        tmp_path,
        "patterns: {secrets: 'sk-[a-z]+'}\njournal: {args: keep, results: keep, redact: [sec*]}\n",
    )
    session = guard.session("s")
    session.record(session.check("x", {"token": "sk-abc"}), result="got sk-abc back")
    session.end()
    (file,) = (tmp_path / "state" / "journal").iterdir()
    assert "sk-abc" not in file.read_text()
    assert "[secrets]" in file.read_text()


def test_a_journal_keeps_all_classes_of_a_call_only_where_there_are_several(
    tmp_path: Path,
) -> None:
    rules = """
rules:
  slow: {classes: [look], when: session.count_class('look') >= 3}
"""
    first = _guard(tmp_path, rules)
    session = first.session("s")
    session.record(session.check("edit", {"n": 1}), result="x")
    session.record(session.check("read", {"n": 1}), result="x")
    first.close()
    (journal,) = tmp_path.rglob("*.jsonl")
    admitted = [
        event
        for event in map(json.loads, journal.read_text().splitlines())
        if event["event"] == "admitted"
    ]
    assert [event["class"] for event in admitted] == ["edit", "look"]
    assert [event.get("classes") for event in admitted] == [["edit", "look"], None]

    session = _guard(tmp_path, rules).session("s")
    assert session.check("edit", {"n": 2}).allowed
    assert session.check("edit", {"n": 3}).violations[0].id == "rules/slow"
