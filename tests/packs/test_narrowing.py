"""The pack `narrowing`: its published behaviour, defects included (SYSTEMS, §1 narrowing)."""

from __future__ import annotations

import pytest

from policyguard import Decision, Guard, Session

HOUR = 3600 * 10**9


class Clock:
    def __init__(self) -> None:
        self.now = 1_772_800_000 * 10**9

    def __call__(self) -> int:
        return self.now


class World:
    """A session with the pack and a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.guard = Guard.load("packs/narrowing", clock=self.clock)
        self.session: Session = self.guard.session("s")

    def ask(self, tool: str, name: str = "x") -> Decision:
        return self.session.preview(tool, {"name": name})

    def run(self, tool: str, error: str | None, name: str = "x") -> str:
        """Check and record one call; return its signature and blame, or `refused`."""
        decision = self.session.check(tool, {"name": name})
        if not decision.allowed:
            return "refused"
        outcome = self.session.record(decision, result="fine", error=error).outcome
        return f"{outcome.signature} {outcome.blame}".strip()


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("ETIMEDOUT", "tool_timeout harness"),
        ("the request timed out", "tool_timeout harness"),
        ("unknown tool: x", "tool_not_found harness"),
        ("EACCES: open '/etc/shadow'", "permission_denied harness"),
        ("Too Many Requests", "rate_limited harness"),
        ("ENOENT: no such file or directory", "file_not_found agent"),
        ("Unexpected token } in JSON", "syntax_error agent"),
        ("old_string was not found", "edit_failed agent"),
        ("command failed: exit code 2", "command_failed agent"),
        ("Invalid input argument", "validation_error agent"),
        ("the branch already exists", "conflict agent"),
        ("no results", "empty_result agent"),
        ("502 Bad Gateway", "api_error unknown"),
        # After the adapter's own come the universal ones.
        ("fatal: out of memory", "oom_killed harness"),
        ("Segmentation fault (core dumped)", "segfault harness"),
        ("listen EADDRINUSE :::80", "port_conflict harness"),
        ("connect ECONNREFUSED", "connection_refused harness"),
        ("no space left on device", "disk_full harness"),
        ("ImportError: x", "missing_module agent"),
        ("NameError: x", "name_error agent"),
        ("TabError: x", "indentation_error agent"),
        # First match wins.
        ("timeout, permission denied", "tool_timeout harness"),
        ("file not found: 429", "rate_limited harness"),
        # Published misfires.
        ("setTimeout is not defined", "tool_timeout harness"),
        ("error at line 403: SyntaxError", "permission_denied harness"),
        ("wrote 14290 bytes", "rate_limited harness"),
        ("exited with code 0", "command_failed agent"),
        ("nullable", "empty_result agent"),
        ("exit status 2", "unknown"),
        ("404 Not Found", "unknown"),
    ],
)
def test_signatures(world: World, text: str, signature: str) -> None:
    assert world.run("edit_file", text) == signature


@pytest.mark.parametrize(
    ("text", "core"),
    [
        ("setTimeout is not defined", ""),
        ("error at line 403: SyntaxError", ""),
        ("wrote 14290 bytes", ""),
        ("exited with code 0", ""),
        ("nullable", ""),
        ("exit status 2", "command_failed"),
        ("404 Not Found", "not_found"),
    ],
)
def test_core_does_not_misfire_on_the_same_texts(text: str, core: str) -> None:
    session = Guard.load("core").session("s")
    outcome = session.record(session.check("edit_file"), error=text).outcome
    assert outcome.signature == core
    assert outcome.blame != "harness"


@pytest.mark.parametrize(
    ("tool", "args", "class_"),
    [
        ("delete_file", {}, "delete"),
        ("createBranch", {}, "file_create"),
        ("write-file", {}, "file_edit"),
        ("read.file", {}, "file_read"),
        ("run_query", {}, "shell_exec"),
        ("grep", {}, "search"),
        ("http_get", {}, "api_call"),
        ("frobnicate", {"cmd": "ls"}, "shell_exec"),
        ("frobnicate", {"old_string": "x"}, "file_edit"),
        ("frobnicate", {"content": "x", "path": "y"}, "file_create"),
        ("frobnicate", {"url": "x"}, "api_call"),
        ("frobnicate", {"glob": "*"}, "search"),
        ("frobnicate", {"name": "x"}, ""),
        # Known to misfile.
        ("update_issue", {}, "file_edit"),
        ("open_pull_request", {}, "file_read"),
    ],
)
def test_classes(tool: str, args: dict[str, str], class_: str) -> None:
    admitted: list[str] = []
    guard = Guard.load(
        "packs/narrowing", listener=lambda event: admitted.append(getattr(event, "class_", ""))
    )
    guard.session("s").check(tool, args)
    assert admitted[-1] == class_


def test_two_failures_ban_the_whole_class(world: World) -> None:
    world.run("edit_file", "no match", "a")
    assert world.ask("write_file", "b").allowed
    world.run("patch_file", "no match", "b")
    refused = world.ask("write_file", "c")
    assert [violation.id.partition("/")[0] for violation in refused.violations] == ["constraints"]
    assert not world.ask("edit_file", "never seen").allowed
    assert world.ask("read_file", "a").allowed


def test_failures_are_counted_by_signature_and_class(world: World) -> None:
    world.run("edit_file", "no match")
    world.run("edit_file", "already exists")
    world.run("read_file", "no match")
    assert world.ask("edit_file").allowed
    assert world.ask("read_file").allowed


def test_a_success_resets_nothing(world: World) -> None:
    world.run("edit_file", "no match")
    for number in range(5):
        world.run("edit_file", None, str(number))
        world.run("run", None, str(number))
    world.run("edit_file", "no match")
    assert not world.ask("edit_file").allowed
    world.run("run", None)
    assert not world.ask("edit_file").allowed


def test_unknown_failures_teach_like_the_agents_own(world: World) -> None:
    assert world.run("fetch_url", "503") == "api_error unknown"
    assert world.run("fetch_url", "503") == "api_error unknown"
    assert not world.ask("fetch_url").allowed


@pytest.mark.parametrize("text", ["timeout", "403", "429", "unknown tool", "disk full"])
def test_harness_failures_teach_nothing(world: World, text: str) -> None:
    for _ in range(10):
        assert world.run("edit_file", text).endswith("harness")
    assert world.ask("edit_file").allowed
    assert not list(world.guard._state.constraint_set)


CLASSES = ("delete_it", "create_it", "edit_it", "read_it", "run_it", "search_it")


def _ban(world: World, tool: str) -> None:
    world.run(tool, "no match")
    world.run(tool, "no match")


def test_at_most_five_constraints(world: World) -> None:
    for tool in CLASSES:
        _ban(world, tool)
    assert [world.ask(tool).allowed for tool in CLASSES] == [False] * 5 + [True]
    other = world.guard.session("other")
    assert other.preview("delete_it").allowed, "a session's constraints are its own"


def test_a_constraint_lives_an_hour(world: World) -> None:
    _ban(world, "edit_it")
    world.clock.now += HOUR - 1
    assert not world.ask("edit_it").allowed
    world.clock.now += 1
    assert world.ask("edit_it").allowed


def test_what_has_expired_makes_room(world: World) -> None:
    for tool in CLASSES[:5]:
        _ban(world, tool)
    world.clock.now += HOUR
    _ban(world, CLASSES[5])
    assert not world.ask(CLASSES[5]).allowed
    _ban(world, CLASSES[0])
    assert not world.ask(CLASSES[0]).allowed


def test_what_has_no_class_narrows_the_radius(world: World) -> None:
    six = {"target": list("abcdef")}
    assert world.session.preview("frobnicate", six).allowed
    for _ in range(2):
        decision = world.session.check("frobnicate", {"target": "a"})
        world.session.record(decision, error="no match")
    assert not world.session.preview("frobnicate", six).allowed
    assert world.session.preview("frobnicate", {"target": list("abcde")}).allowed
