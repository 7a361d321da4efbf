"""The section `pins` in a policy: its lock, layers, differences, lint and policy tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard, PolicyError
from policyguard.cli import main
from policyguard.compare.diff import diff_policies
from policyguard.compiler import compile_policy
from policyguard.pins.lock import format_lock
from tests.pins.tools import LIST, PATTERNS, READ, lock_of, write_policy


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def codes(file: Path) -> list[str]:
    try:
        return [one.code for one in compile_policy([str(file)], cache=False).diagnostics]
    except PolicyError as error:
        return [one.code for one in error.diagnostics]


def rule(text: str) -> str:
    return f"rules:\n  r: {{{text}, effect: block}}\n"


def test_a_lock_is_read_beside_the_last_layer_that_pins(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    base = write_policy(tmp_path / "base", "{changed: ask, new: block}")
    write_policy(tmp_path, "{new: advise}", f"extends: [{base.relative_to(tmp_path)}]\n")
    (tmp_path / "base" / "tools.lock").unlink()
    pins = compile_policy([str(tmp_path / "policy.yaml")], cache=False).policy.pins
    assert pins is not None
    assert (pins.new, pins.changed, [*pins.servers["fs"]]) == (
        "advise",
        "ask",
        ["list_dir", "read_file"],
    )


def test_a_looser_layer_is_a_finding(tmp_path: Path) -> None:
    base = write_policy(tmp_path, "{changed: block, finds: [injection]}", PATTERNS)
    layer = tmp_path / "layer.yaml"
    start = f"policyguard: 1\nname: l\nextends: [./{base.name}]\n"
    for pins, is_found in (("changed: ask", True), ("changed: halt", False), ("finds: []", True)):
        layer.write_text(f"{start}pins: {{{pins}}}\n")
        assert ("lint/weakened-by-a-layer" in run("lint", layer).output) is is_found, pins


@pytest.mark.parametrize("pins", ["{finds: [injection]}", "{}", "{new: block}"])
def test_a_locked_section_stays(pins: str, tmp_path: Path) -> None:
    base = write_policy(tmp_path, pins, f"locked: true\n{PATTERNS}")
    layer = tmp_path / "layer.yaml"
    start = f"policyguard: 1\nname: l\nextends: [./{base.name}]\n"
    for text in (
        "pins: {finds: []}",
        "pins: {lock: other.lock}",
        "pins: {changed: allow}",
        "pins: {mode: observe}",
        'patterns: {injection: "x"}',
    ):
        layer.write_text(f"{start}{text}\n")
        assert "reference/locked" in codes(layer), text


@pytest.mark.parametrize(
    ("lock", "code"),
    [
        (None, "pins/no-lock"),
        ("{}", "pins/malformed"),
        ("not json", "pins/malformed"),
        (format_lock(lock_of(fs=[READ])).replace("Read a file", "Eat a file"), "pins/malformed"),
    ],
)
def test_a_lock_that_cannot_be_used_is_an_error(
    lock: str | None, code: str, tmp_path: Path
) -> None:
    file = write_policy(tmp_path)
    (tmp_path / "tools.lock").unlink()
    if lock is not None:
        (tmp_path / "tools.lock").write_text(lock)
    assert codes(file) == [code]


def test_a_lock_outside_the_folder_is_an_error(tmp_path: Path) -> None:
    assert codes(write_policy(tmp_path, "{lock: ../tools.lock}")) == ["load/outside-folder"]


def test_unknown_patterns_and_effects_are_errors(tmp_path: Path) -> None:
    assert codes(write_policy(tmp_path, "{finds: [injecton]}", PATTERNS)) == [
        "reference/unknown-pattern"
    ]
    assert codes(write_policy(tmp_path, "{new: deny}")) == ["schema/value"]


def test_the_digest_and_the_cache_follow_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = write_policy(tmp_path)
    first, again = Guard.load(file), Guard.load(file)
    assert first.digest == again.digest
    call: dict[str, Any] = {"server": "fs", "definition": READ}
    assert again.session("s").check("read_file", {}, **call).effect == "allow"
    (tmp_path / "tools.lock").write_text(format_lock(lock_of(fs=[LIST])))
    other = Guard.load(file)
    assert other.digest != first.digest
    assert other.session("s").check("read_file", {}, **call).effect == "ask"


def test_a_difference_of_pins_is_one_of_policies(tmp_path: Path) -> None:
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old, new = (write_policy(folder) for folder in folders)
    more = {**READ, "title": "x"}
    (folders[1] / "tools.lock").write_text(format_lock(lock_of(fs=[more, {"name": "z"}])))
    write_policy_text = "policyguard: 1\nname: p\npins: {changed: ask, finds: [injection]}\n"
    new.write_text(write_policy_text + PATTERNS)
    found = diff_policies(*(compile_policy([str(one)], cache=False) for one in (old, new)))
    assert [(one.entry, one.what, one.field, one.direction) for one in found] == [
        ("pins", "changed", "changed", "looser"),
        ("pins", "changed", "finds", "tighter"),
        ("pins/fs/list_dir", "removed", "", ""),
        ("pins/fs/read_file", "changed", "", ""),
        ("patterns/injection", "added", "", ""),
        ("pins/fs/z", "added", "", ""),
    ]
    shown = run("policy", "diff", old, new)
    assert shown.exit_code == 1
    assert "sha256" in shown.output
    assert "pins:" in run("policy", "show", new).output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tools: [read_file], when: \"call.args.path == 'x'\"", []),
        ("tools: [read_file], when: \"call.args.pth == 'x'\"", ["cel/unknown-field"]),
        ("tools: [mcp__fs__read_file], when: \"call.args.pth == 'x'\"", ["cel/unknown-field"]),
        ("tools: [Bash, read_file], when: \"call.args.command == 'x'\"", []),
        ("tools: ['*'], when: \"call.args.anything == 'x'\"", []),
        ("tools: [Bash], when: \"call.args.command == 'x'\"", []),
        ("tools: [mcp__fs__reed_file]", ["reference/unknown-tool"]),
        ("tools: [mcp__other__tool]", []),
        ("when: \"call.tool == 'Bash'\"", []),
    ],
)
def test_the_lock_types_arguments(text: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(write_policy(tmp_path, "{}", rule(text))) == expected


def test_the_lock_may_be_the_schemas(tmp_path: Path) -> None:
    file = write_policy(tmp_path, "{}", f"schemas: tools.lock\n{rule('tools: [Bash]')}")
    assert codes(file) == ["reference/unknown-tool"]
    text = rule("tools: [read_file], when: \"call.args.pth == 'x'\"")
    assert codes(write_policy(tmp_path, "{}", f"schemas: tools.lock\n{text}")) == [
        "cel/unknown-field"
    ]


def test_policy_tests_say_definitions(tmp_path: Path) -> None:
    write_policy(tmp_path, "{new: block}")
    definition = json.dumps({"name": "other"})
    (tmp_path / "tests.yaml").write_text(
        f"""\
policy: policy.yaml
tests:
  - name: a tool that is not pinned
    steps:
      - {{call: {{other: {{}}}}, server: fs, definition: {definition}, expect: block, by: pins/new}}
      - {{call: {{read_file: {{}}}}, server: fs, definition: {json.dumps(READ)}, expect: allow}}
"""
    )
    result = run("test", tmp_path / "tests.yaml")
    assert result.exit_code == 0, result.output
