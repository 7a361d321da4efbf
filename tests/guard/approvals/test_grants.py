"""Grants: approvals that are remembered, and what they must not allow."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from policyguard import Guard, Session
from policyguard.model.decision import Decision
from policyguard.model.event import Admitted, Approved
from policyguard.model.grant import Grant

POLICY = """
policyguard: 1
name: grants
classify: {targets: [order], paths: [path], folder: [workdir], shell: {arguments: [command]}}
rules:
  plain: {tools: [plain, other], effect: ask}
  pay: {tools: [pay], when: "call.args.amount > 200", effect: ask}
  large: {tools: [pay], when: "call.args.amount > 10000"}
  two: {tools: [wire], effect: ask, approval: {from: [lead], count: 2}}
  shell: {tools: [bash], effect: ask}
  write: {tools: [write], effect: ask}
  never: {tools: [write], when: "call.text.contains('secret')"}
limits:
  tools: {poll: {repeat: {max: 1, effect: ask}}}
budgets:
  steps: {tools: [step], calls: 1, effect: ask}
journal: {redact: [token]}
patterns: {token: "tok_[a-z]+"}
"""
SHELL_POLICY = """
policyguard: 1
name: shell
extends: [core]
rules:
  shell: {tools: [bash], effect: ask}
"""
SECOND = 10**9


class Clock:
    now = 10**18

    def __call__(self) -> int:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


@pytest.fixture(scope="module")
def shell_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy over `core`, which takes long to compile."""
    file = tmp_path_factory.mktemp("shell") / "policy.yaml"
    file.write_text(SHELL_POLICY)
    return file


def load(policy: Path, clock: Clock, **options: Any) -> Guard:
    return Guard.load(policy, clock=clock, **options)


def ask(session: Session, tool: str, args: dict[str, Any], **options: Any) -> Decision:
    decision = session.check(tool, args, **options)
    assert decision.effect == "ask"
    return decision


def grant(session: Session, tool: str, args: dict[str, Any], remember: Any, **more: Any) -> Grant:
    """Approve a call so that it is remembered, for an hour unless `more` says otherwise."""
    server = more.pop("server", "")
    decision = ask(session, tool, args, server=server)
    more = {"expires": timedelta(hours=1), **more}
    assert session.approve(decision, by="ann", remember=remember, **more)
    assert session.check(tool, args, server=server).allowed, "the approved call itself"
    return session.guard.grants()[-1]


def run(session: Session, command: str, **more: Any) -> bool:
    return session.preview("bash", {"command": command, **more}).allowed


def test_a_call_is_remembered_and_said_in_decision_and_journal(policy: Path, clock: Clock) -> None:
    guard = load(policy, clock)
    events: list[Any] = []
    guard.on(events.append)
    session = guard.session("s")
    made = grant(session, "plain", {"n": 1}, "call")
    for _ in range(3):
        decision = session.check("plain", {"n": 1})
        assert decision.allowed
    assert decision.grants == (made,)
    assert made.approvers == {"ann": ()}
    assert made.entry == "rules/plain"
    assert not session.check("plain", {"n": 2}).allowed
    (approved,) = [event for event in events if isinstance(event, Approved)]
    assert approved.grants == (made.id,)
    assert approved.pattern == "exactly this call of plain"
    admitted = [event for event in events if isinstance(event, Admitted)]
    assert admitted[-1].grants == (made.id,)


def test_a_small_amount_that_was_approved_allows_no_larger_one(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    grant(session, "pay", {"order": "A1", "amount": 250}, "call")
    assert session.preview("pay", {"order": "A1", "amount": 250}).allowed
    assert not session.preview("pay", {"order": "A1", "amount": 9000}).allowed
    assert not session.preview("pay", {"order": "A1", "amount": 250, "fast": True}).allowed


def test_a_grant_lifts_ask_only(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    made = grant(session, "pay", {"order": "A1", "amount": 250}, "tool")
    assert made.pattern.text == "any call of pay"
    assert session.preview("pay", {"order": "B2", "amount": 9000}).allowed
    refused = session.preview("pay", {"order": "B2", "amount": 10001})
    assert refused.effect == "block"
    assert [violation.id for violation in refused.violations] == ["rules/large"]


def test_a_grant_does_not_lift_the_halt_of_the_entry_that_asked(
    policy: Path, clock: Clock, tmp_path: Path
) -> None:
    halting = POLICY.replace("{max: 1, effect: ask}", "{max: 1, effect: ask, halt_at: 5}")
    assert halting != POLICY
    policy.write_text(halting)
    session = load(policy, clock).session("s")
    assert session.check("poll", {}).allowed
    grant(session, "poll", {}, "call")
    assert [session.check("poll", {}).effect for _ in range(3)] == ["allow", "allow", "halt"]


def test_a_grant_of_an_unknown_scope_allows_nothing(policy: Path, clock: Clock) -> None:
    """A later version may have written it."""
    session = load(policy, clock).session("s")
    made = grant(session, "plain", {}, "call")
    grants = session.guard._state.evaluator_state.grants
    grants.put(replace(made, scope="team:t"))
    assert session.check("plain", {}).effect == "ask"
    grants.put(made)
    assert session.check("plain", {}).allowed


def test_a_decision_that_also_blocks_cannot_be_remembered(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    decision = session.check("pay", {"order": "A1", "amount": 10001})
    with pytest.raises(
        ValueError, match=r"is refused \(block\), and an approval waives \*ask\* only"
    ):
        session.approve(decision, by="ann", remember="tool", expires=60)
    assert session.guard.grants() == ()


def test_a_grant_is_for_the_entry_that_asked(policy: Path, clock: Clock, tmp_path: Path) -> None:
    two = tmp_path / "two.yaml"
    two.write_text(
        "policyguard: 1\nname: two\nrules:\n"
        "  first: {tools: [x], effect: ask}\n"
        '  second: {tools: [x], when: "call.args.n > 1", effect: ask}\n'
    )
    session = load(two, clock).session("s")
    grant(session, "x", {"n": 1}, "tool")
    asked = session.check("x", {"n": 2})
    assert [violation.id for violation in asked.violations] == ["rules/second"]
    assert [used.entry for used in asked.grants] == ["rules/first"]


def test_a_target_is_remembered_with_all_others(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    grant(session, "pay", {"order": "A1", "amount": 250}, "target")
    assert session.preview("pay", {"order": "A1", "amount": 900}).allowed
    assert not session.preview("pay", {"order": "A2", "amount": 250}).allowed
    assert not session.preview("pay", {"order": ["A1", "A2"], "amount": 250}).allowed
    assert not session.preview("pay", {"amount": 250}).allowed
    assert not session.preview("plain", {"order": "A1"}).allowed
    with pytest.raises(ValueError, match="by its target: it has no target"):
        session.approve(ask(session, "plain", {}), by="ann", remember="target", expires=9)


def test_a_grant_is_for_one_server(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    grant(session, "plain", {}, "tool", server="a")
    assert session.preview("plain", {"n": 1}, server="a").allowed
    assert session.preview("mcp__a__plain", {"n": 1}).allowed, "the same tool"
    assert not session.preview("plain", {"n": 1}, server="b").allowed
    assert not session.preview("plain", {"n": 1}).allowed
    assert not session.preview("other", {"n": 1}, server="a").allowed


PREFIX = [
    ("git push origin feature", "git push origin other", True),
    ("git push origin feature", "git push origin", True),
    ("git push origin feature", "'git' push \"origin\" x 2>/dev/null", True),
    ("git push origin feature", "git push --force origin feature", False),
    ("git push origin feature", "git push origin +feature", False),
    ("git push origin feature", "git push upstream feature", False),
    ("git push origin feature", "git push origin x && rm -rf /", False),
    ("git push origin feature", "git push origin $(cat .env)", False),
    ("git push origin feature", "git push origin x > /etc/passwd", False),
    ("git push origin feature", "git push origin x; git push evil x", False),
    ("git push origin feature", "GIT_SSH=./evil git push origin x", False),
    ("git push origin feature", "git -c core.sshCommand=evil push origin x", False),
    ("git push origin feature", "sudo git push origin x", False),
    ("git push origin feature", "./git push origin x", False),
    ("git push origin feature", "git push origin x | sh", False),
    ("git push origin feature", "git push origin\nrm -rf /", False),
    ("git push origin feature", "echo git push origin x", False),
    ("git push origin feature", "xargs git push origin", False),
    ("git push -u origin feature", "git push -u origin other", True),
    ("git push -u origin feature", "git push -u evil other", False),
    ("git push -u origin feature", "git push origin", True),
    ("rm build/x", "rm build/y", True),
    ("rm build/x", "rm -rf build/y", False),
    ("tar xf a.tar", "tar xf a.tar --to-command=sh", False),
    ("cat a.txt", "cat /etc/passwd", False),
    ("cat a.txt", "cat a.txt sub/../../b", False),
    ("cat a.txt", "cat {a.txt,~/.ssh/id_rsa}", False),
    ("cat a.txt", "cat c:/x", False),
    ("cat a.txt", "cat sub/../b.txt", True),
    ("rm -rf build", "rm -rf build /", False),
    ("rm -rf build", "rm -rf build ~", False),
    ("rm -rf build", "rm -rf build ..", False),
]


@pytest.mark.parametrize(("approved", "other", "allowed"), PREFIX)
def test_a_prefix_is_no_wider_than_what_it_shows(
    shell_policy: Path, clock: Clock, approved: str, other: str, allowed: bool
) -> None:
    session = load(shell_policy, clock).session("s")
    grant(session, "bash", {"command": approved}, "prefix")
    assert run(session, other) is allowed


def test_a_prefix_covers_paths_in_the_folders_where_it_was_approved(
    shell_policy: Path, clock: Clock
) -> None:
    session = load(shell_policy, clock).session("s", cwd="/srv/app/")
    args = {"command": "cat a.txt", "workdir": "../lib"}
    grant(session, "bash", args, "prefix")

    def is_allowed(command: str) -> bool:
        return session.preview("bash", args | {"command": command}).allowed

    assert is_allowed("cat b.txt /srv/app/c /srv/lib/d .")
    assert not is_allowed("cat /srv/application/a")
    assert not is_allowed("cat /srv/app/../x")
    assert not is_allowed("cat ../x")
    asked = session.check("bash", {"command": "cat /etc/hosts"})
    with pytest.raises(ValueError, match="`/etc/hosts` is outside the session's folder"):
        session.approve(asked, by="ann", remember="prefix", expires=60)


def test_a_prefix_shows_its_pattern(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s", cwd="/w")
    made = grant(session, "bash", {"command": "git push -u origin x", "workdir": "/w/a"}, "prefix")
    assert made.pattern.text == (
        "bash: git push … (no options but -u origin), in /w/a, in sessions in /w"
    )
    assert run(session, "git push -u origin y", workdir="/w/a")
    assert not run(session, "git push -u origin y", workdir="/etc")
    assert not run(session, "git push -u origin y")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("make test && git push", "runs 2 programs"),
        ("sudo rm x", "runs 2 programs"),
        ("python script.py", "runs code"),
        ("bash -c 'git push'", "runs"),
        ("git push $(cat x)", "programs|replaces|seen"),
        ("$PROGRAM push", "seen|replaces"),
        ("git log > out.txt", "redirection"),
        ("FOO=1 make", "variables"),
        ("rm *.txt", "replaces"),
        ("./run.sh", "no program of the system"),
        ("git push 'unfinished", "seen"),
    ],
)
def test_a_prefix_of_an_opaque_or_chained_command_is_refused(
    shell_policy: Path, clock: Clock, command: str, reason: str
) -> None:
    session = load(shell_policy, clock).session("s")
    decision = ask(session, "bash", {"command": command})
    with pytest.raises(ValueError, match=reason):
        session.approve(decision, by="ann", remember="prefix", expires=60)
    assert session.guard.grants() == ()
    assert not session.preview("bash", {"command": command}).allowed, "nor is the call approved"


def test_a_prefix_of_paths_is_their_folder(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s", cwd="/w")
    made = grant(session, "write", {"path": "src/a.py", "text": "1"}, "prefix")
    assert made.pattern.text == "write on paths below /w/src/, in sessions in /w"

    def allowed(path: Any) -> bool:
        return session.preview("write", {"path": path, "text": "2"}).allowed

    assert allowed("src/b.py")
    assert allowed("/w/src/deep/c.py")
    for path in (
        "src/../../etc/passwd",
        "/w/srcx/a.py",
        "/etc/passwd",
        "~/src/a.py",
        "/w/src/$HOME/x",
        "/w/src/%2e%2e/x",
        ["src/a.py", "/etc/passwd"],
        "src",
        "",
        "src/secret",
    ):
        assert not allowed(path), path
    assert not session.preview("write", {"text": "2"}).allowed
    for path in ("a", "~/x/y", "/x", ["/q/b", "/r/d"]):
        decision = session.check("write", {"path": path})
        if path == "a":
            assert session.approve(decision, by="ann", remember="prefix", expires=60)
            continue
        with pytest.raises(ValueError, match="by its prefix"):
            session.approve(decision, by="ann", remember="prefix", expires=60)


def test_a_grant_of_a_session_is_for_this_run_alone(policy: Path, clock: Clock) -> None:
    guard = load(policy, clock)
    session = guard.session("s", agent="a")
    grant(session, "plain", {}, "tool")
    assert not guard.session("t", agent="a").preview("plain", {}).allowed
    child = guard.session("child", parent=session, agent="a")
    assert not child.preview("plain", {}).allowed
    child.close()
    session.end()
    assert guard.grants() == ()
    assert not guard.session("s", agent="a").preview("plain", {}).allowed, "another run"


@pytest.mark.parametrize("scope", ["agent", "user", "project", "global"])
def test_a_wider_scope_holds_for_its_sessions_in_the_same_folder(
    policy: Path, clock: Clock, scope: Any
) -> None:
    guard = load(policy, clock)
    owner = {"agent": "a", "user": "u", "project": "p"}
    made = grant(guard.session("s", cwd="/w", **owner), "plain", {}, "tool", scope=scope)
    assert made.scope == (f"{scope}:{owner[scope]}" if scope in owner else "global:")
    assert guard.session("t", cwd="/w", **owner).preview("plain", {}).allowed
    assert not guard.session("u", cwd="/x", **owner).preview("plain", {}).allowed
    other = {**owner, scope: "another"} if scope in owner else {}
    elsewhere = guard.session("v", cwd="/w", **other)
    assert elsewhere.preview("plain", {}).allowed is (scope == "global")


def test_a_scope_needs_a_name(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    decision = ask(session, "plain", {})
    with pytest.raises(ValueError, match="the session has no agent"):
        session.approve(decision, by="ann", remember="tool", expires=60, scope="agent")


def test_it_expires_by_the_clock_of_events(policy: Path, clock: Clock) -> None:
    guard = load(policy, clock)
    session = guard.session("s")
    grant(session, "plain", {}, "tool", expires=60)
    clock.wait(59)
    assert session.preview("plain", {}).allowed
    clock.wait(1)
    assert not session.preview("plain", {}).allowed
    clock.wait(-3600)  # a step back of the wall clock is no time that passes
    assert not session.preview("plain", {}).allowed
    assert guard.grants() == ()


def test_it_may_expire_at_a_time(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    at = datetime.fromtimestamp(clock.now / SECOND, UTC)
    made = grant(session, "plain", {}, "tool", expires=at + timedelta(minutes=5))
    assert made.expires_at == clock.now + 300 * SECOND
    decision = ask(session, "other", {})
    for wrong in (at - timedelta(seconds=1), 0, float("inf"), None):
        with pytest.raises(ValueError, match="expires"):
            session.approve(decision, by="ann", remember="tool", expires=wrong)
    with pytest.raises(ValueError, match="pass `remember` too"):
        session.approve(decision, by="ann", expires=60)


def test_it_expires_when_time_ends_at_the_latest(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    assert grant(session, "plain", {}, "tool", expires=timedelta.max).expires_at == 2**63 - 1


def test_several_people_must_want_the_same_remembered(policy: Path, clock: Clock) -> None:
    guard = load(policy, clock)
    session = guard.session("s")
    lead: dict[str, Any] = {"labels": ["lead"], "remember": "tool"}

    decision = ask(session, "wire", {"n": 1})
    assert not session.approve(decision, by="ann", expires=600, **lead)
    assert not session.approve(decision, by="ann", expires=600, **lead), "the same person"
    assert guard.grants() == ()
    assert session.approve(decision, by="bo", labels=["lead"]), "bo approves this call alone"
    assert guard.grants() == ()
    assert session.check("wire", {"n": 1}).allowed

    decision = ask(session, "wire", {"n": 2})
    assert not session.approve(decision, by="ann", expires=600, **lead)
    assert not session.approve(decision, by="eve", remember="tool", expires=600), "no lead"
    assert session.approve(decision, by="bo", expires=60, **lead)
    (made,) = guard.grants()
    assert set(made.approvers) == {"ann", "bo"}
    assert made.expires_at == clock.now + 60 * SECOND, "the earlier time"
    assert session.check("wire", {"n": 3}).allowed


def test_a_rule_may_allow_less(policy: Path, clock: Clock, tmp_path: Path) -> None:
    store = tmp_path / "s" / "store.db"
    with load(policy, clock, store=store) as guard:
        grant(guard.session("s", project="p"), "plain", {}, "tool", scope="project")
    policy.write_text(
        POLICY.replace("other], effect: ask", "other], effect: ask, approval: {remember: [call]}")
    )
    with load(policy, clock, store=store) as guard:
        session = guard.session("t", project="p")
        decision = ask(session, "plain", {"n": 1})
        with pytest.raises(ValueError, match="lets no approval be remembered by its tool"):
            session.approve(decision, by="ann", remember="tool", expires=60)
        assert not session.preview("plain", {"n": 1}).allowed
        grant(session, "plain", {"n": 1}, "call")
        assert session.preview("plain", {"n": 1}).allowed


def test_late_approvals_make_no_grant(policy: Path, clock: Clock) -> None:
    guard = load(policy, clock)
    session = guard.session("s")
    lead: dict[str, Any] = {"labels": ["lead"], "remember": "tool", "expires": 600}
    decision = ask(session, "wire", {"n": 1})
    session.approve(decision, by="ann", **lead)
    clock.wait(301)
    assert not session.approve(decision, by="bo", **lead)
    assert guard.grants() == ()


def test_grants_of_another_process_are_listed_at_once(
    policy: Path, clock: Clock, tmp_path: Path
) -> None:
    store = tmp_path / "s" / "store.db"
    with load(policy, clock, store=store) as one, load(policy, clock, store=store) as other:
        assert other.grants() == ()
        made = grant(one.session("s", project="p"), "plain", {}, "tool", scope="project")
        assert [held.id for held in other.grants()] == [made.id]


def test_an_approval_that_no_check_waits_for_makes_no_grant(policy: Path, clock: Clock) -> None:
    guard = load(policy, clock)
    session = guard.session("s")
    decision = session.preview("plain", {})
    assert not session.approve(decision, by="ann", remember="tool", expires=60)
    assert guard.grants() == ()


def test_a_stricter_policy_asks_again(policy: Path, clock: Clock, tmp_path: Path) -> None:
    store = tmp_path / "s" / "store.db"
    with load(policy, clock, store=store) as guard:
        grant(guard.session("s", project="p"), "plain", {}, "tool", scope="project")
    policy.write_text(
        POLICY.replace("other], effect: ask", "other], effect: ask, approval: {from: [lead]}")
    )
    with load(policy, clock, store=store) as guard:
        assert len(guard.grants()) == 1
        assert not guard.session("t", project="p").preview("plain", {}).allowed


def test_limits_and_budgets_are_lifted_too(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    for tool, entry in (("poll", "limits/tools:poll/repeat"), ("step", "budgets/steps")):
        first = session.check(tool, {})
        session.record(first, result="same")
        asked = ask(session, tool, {})
        assert [violation.id for violation in asked.violations] == [entry]
        assert session.approve(asked, by="ann", remember="call", expires=60)
        for _ in range(4):
            decision = session.check(tool, {})
            assert decision.allowed
            session.record(decision, result="same")
        assert [used.entry for used in decision.grants] == [entry]


def test_what_the_policy_masks_is_not_shown_in_a_grant(policy: Path, clock: Clock) -> None:
    session = load(policy, clock).session("s")
    decision = ask(session, "bash", {"command": "deploy --token tok_abc now"})
    with pytest.raises(ValueError, match="masks"):
        session.approve(decision, by="ann", remember="prefix", expires=60)


def test_other_processes_see_it_and_revoke_it(
    policy: Path, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policyguard.guard.learning.constraint_sync.POLL_INTERVAL", 0.0)
    store = tmp_path / "s" / "store.db"
    with load(policy, clock, store=store) as one, load(policy, clock, store=store) as two:
        first, second = one.session("s", project="p"), two.session("t", project="p")
        assert not second.preview("plain", {}).allowed
        made = grant(first, "plain", {}, "tool", scope="project")
        assert second.preview("plain", {}).allowed
        assert two.grants() == (made,)
        assert two.revoke(made.id, by="bo")
        assert not first.preview("plain", {}).allowed
        assert not second.preview("plain", {}).allowed
        assert one.grants() == two.grants() == ()
        assert not one.revoke(made.id, by="bo")
    with load(policy, clock, store=store) as three:
        assert not three.session("u", project="p").preview("plain", {}).allowed


def test_a_resumed_session_keeps_its_grants(policy: Path, clock: Clock, tmp_path: Path) -> None:
    store = tmp_path / "s" / "store.db"
    with load(policy, clock, store=store) as guard:
        grant(guard.session("s"), "plain", {}, "tool")
        revoked = grant(guard.session("s"), "write", {"path": "/x/y"}, "tool")
        guard.revoke(revoked.id, by="ann")
    with load(policy, clock, store=store) as guard:
        session = guard.session("s")
        assert session.preview("plain", {}).allowed
        assert not session.preview("write", {"path": "/x/y"}).allowed, "its journal grants nothing"
        session.end()
        assert not guard.session("s").preview("plain", {}).allowed


@pytest.mark.parametrize(
    "forgery",
    [
        "UPDATE grants SET scope = 'global:'",  # not what counts
        "UPDATE grants SET payload = CAST(replace(payload, 'plain', 'other') AS BLOB)",
        "UPDATE grants SET state = 'active', revoked_by = ''",
        "INSERT INTO grants SELECT 'gaaaaaaaaaaaa', scope, key, 'active', updated_at, payload, '', "
        "mac, version + 1, used + 1 FROM grants",
    ],
)
def test_a_forged_row_grants_nothing(
    policy: Path, clock: Clock, tmp_path: Path, forgery: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "s" / "store.db"
    with load(policy, clock, store=store) as guard:
        session = guard.session("s", project="p")
        made = grant(session, "plain", {}, "tool", scope="project")
        guard.revoke(made.id, by="ann")
    with sqlite3.connect(store) as connection:
        connection.execute(forgery)
        connection.execute("UPDATE meta SET value = value + 5 WHERE name = 'grants version'")
    connection.close()
    with load(policy, clock, store=store) as guard:
        session = guard.session("t", project="p")
        assert not session.preview("plain", {}).allowed
        assert not session.preview("other", {}).allowed
        assert guard.grants() == ()
    from policyguard.store.sqlite.store import SqliteStore

    assert "grants" in SqliteStore(store, caps=None, read_only=True).find_edited()


def test_a_copy_of_a_row_under_another_id_grants_nothing(
    policy: Path, clock: Clock, tmp_path: Path
) -> None:
    store = tmp_path / "s" / "store.db"
    with load(policy, clock, store=store) as guard:
        made = grant(guard.session("s", project="p"), "plain", {}, "tool", scope="project")
        with sqlite3.connect(store) as connection:
            connection.execute(
                "INSERT INTO grants SELECT 'gzzzzzzzzzzzz', scope, key, state, updated_at, "
                "payload, revoked_by, mac, version, used FROM grants"
            )
        connection.close()
        guard.revoke(made.id, by="ann")
    with load(policy, clock, store=store) as guard:
        assert not guard.session("t", project="p").preview("plain", {}).allowed
        assert guard.grants() == ()


def test_an_honest_row_of_another_key_grants_nothing(
    policy: Path, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "s" / "store.db"
    key = tmp_path / "key"
    key.write_text("k" * 32)
    with load(policy, clock, store=store) as guard:
        grant(guard.session("s", project="p"), "plain", {}, "tool", scope="project")
    with load(policy, clock, store=store, journal_key=key) as guard:
        assert not guard.session("t", project="p").preview("plain", {}).allowed
    assert "made under another key" in caplog.text


def test_a_grant_that_cannot_be_journalled_does_not_hold(
    policy: Path, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load(policy, clock, store=tmp_path / "s" / "store.db") as guard:
        session = guard.session("s")
        decision = ask(session, "plain", {})

        def fail(*_: object) -> None:
            raise OSError("disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(session._pipeline, "approve", fail, raising=False)
            with pytest.raises(OSError, match="disk is full"):
                session.approve(decision, by="ann", remember="tool", expires=60)
        assert guard.grants() == ()
        assert not session.preview("plain", {}).allowed


def test_there_are_never_more_than_the_bound(policy: Path, clock: Clock, tmp_path: Path) -> None:
    policy.write_text(POLICY + "bounds: {grants: 2}\n")
    for options in ({}, {"store": tmp_path / "s" / "store.db"}):
        with load(policy, clock, **options) as guard:
            session = guard.session("s")
            for number in range(4):
                grant(session, "plain", {"n": number}, "call")
            assert len(guard.grants()) == 2
            assert not session.preview("plain", {"n": 0}).allowed
            assert session.preview("plain", {"n": 3}).allowed


def test_a_grant_for_one_case_lets_no_call_past_another(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "policyguard: 1\nname: t\nclassify: {shell: {arguments: [command]}}\n"
        "rules: {shell: {tools: [bash], cases: ["
        "{commands: [git push], effect: ask}, {commands: [rm], effect: ask}]}}\n"
    )
    session = Guard.load(policy).session("s")
    asked = session.check("bash", {"command": "git push"})
    session.approve(asked, by="ann", remember="tool", expires=60)
    assert session.check("bash", {"command": "git push"})
    assert session.check("bash", {"command": "git push -v"})
    refused = session.check("bash", {"command": "git push; rm x"})
    assert [one.id for one in refused.violations] == ["rules/shell/2"]


def test_a_batch_is_checked_again_once_what_refused_it_is_granted(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "policyguard: 1\nname: t\nbatch: all_or_none\nrules: {pay: {tools: [pay], effect: ask}}\n"
    )
    session = Guard.load(policy).session("s")
    calls: list[tuple[str, dict[str, Any]]] = [("look", {}), ("pay", {"n": 2})]
    first = session.check_batch(calls, batch="b")
    assert not any(first)
    session.approve(first[1], by="ann", remember="tool", expires=60)
    assert all(session.check_batch(calls, batch="b"))
