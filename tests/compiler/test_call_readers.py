"""Reading commands and targets from arguments."""

from __future__ import annotations

import pytest

from policyguard import Guard
from policyguard.compiler.build.selectors.call_readers import command_reader

POLICY = """
policyguard: 1
name: deep
bounds: {argument_depth: 3000}
classify:
  targets: [path]
  shell: {arguments: [command, action.run]}
rules:
  no-secret: {when: "'secret' in call.targets", effect: block}
  no-rm: {when: "call.command.contains('rm')", effect: block}
"""


@pytest.fixture
def session(tmp_path):
    file = tmp_path / "policyguard.yaml"
    file.write_text(POLICY)
    with Guard.load(file).session("s") as session:
        yield session


def nest(value, depth, *, as_list):
    for _ in range(depth):
        value = [value] if as_list else {"a": value}
    return value


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize(
    ("argument", "leaf", "rule"), [("path", "secret", "no-secret"), ("command", "rm", "no-rm")]
)
def test_deep_arguments_are_read(session, argument, leaf, rule, as_list):
    decision = session.check("tool", {argument: nest(leaf, 400, as_list=as_list)})
    assert not decision.errors
    assert [one.id for one in decision.violations] == [f"rules/{rule}"]


def test_a_field_is_found_in_deep_lists(session):
    decision = session.check("tool", {"action": nest({"run": "rm"}, 400, as_list=True)})
    assert not decision.errors
    assert [one.id for one in decision.violations] == ["rules/no-rm"]


def test_arguments_too_deep_for_python_are_refused_as_invalid(session):
    decision = session.check("tool", {"path": nest("a", 20_000, as_list=True)})
    assert not decision
    assert [one.id for one in decision.violations] == ["bounds/arguments"]
    assert "nested deeper than Python can read" in decision.message


@pytest.mark.parametrize(
    ("value", "command"),
    [
        ([1, -2, 1.5, True, 10**30, "a", None], "1 -2 1.5 true 1000000000000000000000000000000 a"),
        ({"a": None, "b": [None, "", {}]}, "a b"),
        ({"a": True, "b": 0}, "0"),
        ({"a": {"/x": {"b": None}}}, "/x b"),
        (["bash", "-lc", "rm 'a b'"], """bash -lc 'rm '"'"'a b'"'"''"""),
        (["git", "commit", "-m", "a; b"], "git commit -m 'a; b'\ngit commit -m a; b"),
        ('["rm", "a b"]', """["rm", "a b"]\nrm 'a b'\nrm a b"""),
        (["ls -l", "rm x"], "'ls -l' 'rm x'\nls -l rm x\nls -l\nrm x"),
        ([], ""),
    ],
)
def test_words_of_a_command_that_is_no_text(value, command):
    assert command_reader(("a",))({"a": value}) == command


@pytest.mark.parametrize(
    ("args", "command"),
    [
        ({"command": "rm", "args": ["-rf", "a b"]}, "rm\nrm -rf 'a b'\nrm -rf a b"),
        ({"command": "rm", "args": ["-rf", "x"], "cwd": "/"}, "rm\nrm -rf x"),
        ({"command": "ls", "argv": [1, "x"], "args": "y"}, "ls\nls 1 x"),
        ({"command": "ls", "args": {"a": "b"}}, "ls"),
        ({"command": "ls", "args": []}, "ls"),
        ({"args": ["rm", "x"]}, ""),
    ],
)
def test_words_beside_a_command(args, command):
    assert command_reader(("command",), ("args", "argv"))(args) == command


@pytest.mark.parametrize(
    ("args", "command"),
    [
        ({"commands": ["ls", "rm 'x y'"]}, "ls\nrm 'x y'"),
        ({"command": "cd a", "commands": ["ls"]}, "cd a\nls"),
        ({"commands": [{"keystrokes": "rm x\n", "wait": 1}]}, "rm x\n\n1"),
        ({"commands": [["rm", "a b"], ["ls"]]}, "rm 'a b'\nrm a b\nls"),
        ({"commands": '["ls", "rm x"]'}, "ls\nrm x"),
        ({"commands": "rm x"}, "rm x"),
        ({"commands": "[ -f x ] && rm x"}, "[ -f x ] && rm x"),
        ({"commands": [None, "", 3]}, "3"),
        ({"commands": {"a": "rm x"}}, "rm x"),
    ],
)
def test_lists_of_commands(args, command):
    assert command_reader(("command",), (), ("commands",))(args) == command


@pytest.mark.parametrize("action", [{"commands": ["rm x"]}, '{"commands": ["rm x"]}'])
def test_a_list_of_commands_in_a_field_is_read_beside_a_command(tmp_path, action):
    file = tmp_path / "policyguard.yaml"
    shell = "{arguments: [command], lists: [action.commands]}"
    file.write_text(POLICY.replace("{arguments: [command, action.run]}", shell))
    with Guard.load(file).session("s") as session:
        decision = session.check("tool", {"command": "ls", "action": action})
    assert [one.id for one in decision.violations] == ["rules/no-rm"]
