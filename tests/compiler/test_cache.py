"""The cache returns the policy that was stored, or nothing."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policyguard import Guard, schemas
from policyguard import compiler as compiling
from policyguard.cel import DYN, CelError, Declarations
from policyguard.cel import compile as compile_cel
from policyguard.cel.runtime.runtime import RUNTIME
from policyguard.cel.syntax.ast import Expr as Expression
from policyguard.cel.syntax.parse import parse as parse_cel
from policyguard.cli import main
from policyguard.compiler import CompiledPolicy, cache, check_policy, compile_policy
from policyguard.compiler.cache import CachedPolicy
from policyguard.engines.yaml_tree import MappingNode as Tree
from policyguard.engines.yaml_tree import Node, to_plain
from policyguard.lint import lint_paths
from policyguard.lint import linter as linter
from policyguard.model.diagnostic import PolicyError
from policyguard.report.replay.renderers import render_json
from policyguard.simulate import Replay
from policyguard.store.file_cache import FileCache
from policyguard.testing import suite_reader
from policyguard.testing.runner import run_test
from policyguard.testing.suite_reader import build_suite, parse_file
from policyguard.traces import Reader
from tests.examples import THOROUGH, examples, slow_but, some

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(os.environ.get("POLICYGUARD_EXAMPLES", ROOT.parent / "shared" / "example-policies"))
TRACES = Path(os.environ.get("POLICYGUARD_TRACES", ROOT.parent / "shared" / "traces"))
STORIES = sorted((ROOT / "tests" / "cases" / "stories").glob("*.yaml"))
LINTED = sorted((ROOT / "tests" / "cases" / "lint").rglob("policy.yaml"))
PACKS = ["core", *sorted(path.parent.name for path in ROOT.glob("policies/packs/*/policy.yaml"))]
TESTS = sorted([*ROOT.glob("policies/**/tests.yaml"), *ROOT.glob("policies/**/*.tests.yaml")])

RULE = """\
policyguard: 1
name: small
extends: [base.yaml]
rules:
  none-too-many:
    tools: [fetch]
    when: call.args.count > params.most
    message: too many
"""
BASE = """\
policyguard: 1
name: base
params:
  most: {default: 3, env: MOST}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty, enabled cache folder for policies; the parser's table is loaded already."""
    parse_cel("true", lambda *_: None)
    folder = tmp_path / "cache"
    monkeypatch.setenv("POLICYGUARD_CACHE", str(folder))
    return folder


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy of two files in the current folder."""
    home = tmp_path / "project"
    home.mkdir()
    (home / "policy.yaml").write_text(RULE)
    (home / "base.yaml").write_text(BASE)
    monkeypatch.chdir(home)
    return Path("policy.yaml")


class Counted:
    """Counts full compilations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        whole = compiling.check_policy

        def counted(*args: Any, **named: Any) -> Any:
            self.times += 1
            return whole(*args, **named)

        monkeypatch.setattr(compiling, "check_policy", counted)
        monkeypatch.setattr(linter, "check_policy", counted)
        monkeypatch.setattr(suite_reader, "check_policy", counted)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def valid_policies(files: Iterable[Path]) -> Iterator[str]:
    """Yield the files that are policies without errors."""
    for file in files:
        if check_policy(file, environ={})[0] is not None:
            yield str(file)


def compile_twice(
    policy: str | Path, environ: Mapping[str, str], compiled: Counted
) -> tuple[CompiledPolicy, CompiledPolicy]:
    """Return a policy compiled, and the same from the cache."""
    before = compiled.times
    fresh = compile_policy(policy, environ=environ)
    assert compiled.times == before + 1
    known = compile_policy(policy, environ=environ)
    assert compiled.times == before + 1
    return fresh, known


def assert_same(fresh: CompiledPolicy, known: CompiledPolicy) -> None:
    """Assert that two policies are equal, part by part."""
    assert known.policy == fresh.policy
    encode = msgspec.msgpack.encode
    assert encode(known.policy) == encode(fresh.policy)  # 1 == 1.0 == True, but not here
    assert known.evaluator.digest == fresh.evaluator.digest
    assert known.diagnostics == fresh.diagnostics
    assert known.inputs == fresh.inputs
    assert known.learning.keys() == fresh.learning.keys()
    for name, entry in fresh.learning.items():
        assert replace(known.learning[name], scope_key=None, key=None, count_by=None) == (
            replace(entry, scope_key=None, key=None, count_by=None)
        )
    assert [(one.id, one.schedule) for one in known.radius] == [
        (one.id, one.schedule) for one in fresh.radius
    ]
    assert known.expressions.all_reads() == fresh.expressions.all_reads()
    assert list(known.expressions.sources()) == list(fresh.expressions.sources())
    programs = dict(known.expressions)
    assert programs.keys() == dict(fresh.expressions).keys()
    for path, program in fresh.expressions:
        cached = programs[path]
        parts = ("source", "code", "parameters", "reads", "parameter_types", "type", "warnings")
        for part in parts:
            assert getattr(cached, part) == getattr(program, part), (path, part)
        assert known.expressions.reads(*path) == fresh.expressions.reads(*path)
        assert known.merged.span_of(path) == fresh.merged.span_of(path)
    assert known.merged.sources == fresh.merged.sources
    assert repr(known.merged.tree) == repr(fresh.merged.tree)


def replay_report(compiled_policy: CompiledPolicy, traces: list[Path]) -> bytes:
    """Return the replay report of recorded runs under a policy."""
    compiled_policy.fingerprinter.rekey(b"the same for both")
    replay = Replay(compiled_policy, observe=False, labels=None)
    reader = Reader()
    for trace in traces:
        for file in reader.iter_files(trace):
            replay.add(file)
    return render_json(replay.finish()).encode()


def recordings() -> list[Path]:
    """Return the demo run, and one file of every available set of recordings."""
    found = [ROOT / "docs" / "demo" / "trace.jsonl"]
    if TRACES.is_dir():
        for folder in sorted(path for path in TRACES.iterdir() if path.is_dir()):
            files = [file for file in folder.rglob("*.jsonl*") if file.stat().st_size < 300_000]
            found += sorted(files)[:1]
    return found


# Content


@pytest.mark.parametrize("pack", slow_but(("coding-agent",), PACKS))
def test_cached_pack_decides_like_a_fresh_one(pack: str, folder: Path, compiled: Counted) -> None:
    fresh, known = compile_twice(pack, {}, compiled)
    traces = recordings()
    assert replay_report(known, traces) == replay_report(fresh, traces)
    assert_same(fresh, known)


@pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason=f"no example policies in {EXAMPLES} (POLICYGUARD_EXAMPLES)"
)
def test_cached_example_policies_decide_like_fresh_ones(folder: Path, compiled: Counted) -> None:
    files = list(valid_policies(some(sorted(EXAMPLES.glob("*.yaml")), 8)))
    assert files
    for file in files:
        fresh, known = compile_twice(file, {}, compiled)
        traces = recordings()[:3]
        assert replay_report(known, traces) == replay_report(fresh, traces)
        assert_same(fresh, known)


def test_tests_of_a_policy_use_its_entry(
    small: Path, folder: Path, compiled: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOST", raising=False)
    Guard.load(small)
    suite = "policy: policy.yaml\ntests: [{name: a, steps: [{turn: true}]}]\n"
    Path("tests.yaml").write_text(suite)
    assert main_status(["test", "tests.yaml"]) == 0
    assert compiled.times == 1
    Path("tests.yaml").write_text(suite + "environ: {MOST: '9'}\n")
    assert main_status(["test", "tests.yaml"]) == 0
    assert compiled.times == 2
    Guard.load(small)
    assert compiled.times == 2  # its own variables left the entry alone


def main_status(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    return exit_.value.code or 0


@pytest.mark.parametrize("file", some([*STORIES, *TESTS], 12), ids=lambda file: file.name)
def test_cached_policies_pass_the_same_stories(
    file: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: Counted
) -> None:
    root, _ = parse_file(file)
    assert isinstance(root, Tree)
    with monkeypatch.context() as set_:
        set_.setenv("POLICYGUARD_CACHE", "off")
        suite, found = build_suite(root)
    assert suite is not None, found
    policy: Node | None = root.get("policy")
    given = to_plain(root.get("environ")) if "environ" in root else {}
    environ = {name: str(value) for name, value in given.items()}
    name = str(to_plain(policy))
    if isinstance(policy, Tree):
        head = {"policyguard": 1, "name": "a story"}
        monkeypatch.chdir(file.parent)
        name = str(tmp_path / "policy.yaml")
        Path(name).write_text(json.dumps({**head, **to_plain(policy)}))
    elif name.endswith(".yaml"):
        name = str(file.parent / name)
    fresh, known = compile_twice(name, environ, compiled)
    assert_same(fresh, known)
    for test in suite.tests:
        first = run_test(suite._replace(compiled=fresh), test)
        second = run_test(suite._replace(compiled=known), test)
        assert first.failures == second.failures == (), test.name


def test_warnings_are_cached(small: Path, folder: Path, compiled: Counted) -> None:
    small.write_text(
        RULE.replace("too many", "more than {limit}")
        + "  by-hint: {tools: [x], when: call.hints.read_only}\n"
    )
    Path("base.yaml").write_text(BASE + "  open: {default: yes}\n")
    fresh, known = compile_twice(small, {}, compiled)
    assert {one.code for one in known.diagnostics} == {
        "cel/maybe-absent",
        "reference/placeholder",
        "yaml/boolean-trap",
    }
    assert_same(fresh, known)


# Validity


def test_entry_is_valid_while_nothing_changes(small: Path, folder: Path, compiled: Counted) -> None:
    fresh, known = compile_twice(small, {}, compiled)
    os.utime(small)  # a time says nothing
    assert compile_policy(str(small), environ={"OTHER": "1"}).policy == fresh.policy == known.policy
    assert compiled.times == 1
    assert len(list(folder.iterdir())) == 1


def _change_layer() -> None:
    Path("base.yaml").write_text(BASE.replace("3", "4"))


def _change_quietly() -> None:
    """Keep size and times."""
    before = Path("base.yaml").stat()
    _change_layer()
    os.utime("base.yaml", ns=(before.st_atime_ns, before.st_mtime_ns))


def _comment() -> None:
    Path("policy.yaml").write_text(RULE + "# a comment\n")


def _lead_elsewhere() -> None:
    """Keep the text, but change the path: relative `extends` may lead to another file."""
    Path("there").mkdir()
    Path("base.yaml").rename("there/base.yaml")
    Path("base.yaml").symlink_to("there/base.yaml")


@pytest.mark.parametrize("change", [_change_layer, _change_quietly, _comment, _lead_elsewhere])
def test_changed_layer_is_recompiled(
    change: Callable[[], None], small: Path, folder: Path, compiled: Counted
) -> None:
    compile_policy(small, environ={})
    change()
    fresh = compile_policy(small, environ={})
    assert compiled.times == 2
    known = compile_policy(small, environ={})
    assert compiled.times == 2
    assert_same(fresh, known)
    assert known.policy == compile_policy(small, environ={}, cache=False).policy


@pytest.mark.parametrize("change", ["gone", "folder", "pipe", "broken"])
def test_unreadable_layer_is_an_error(change: str, small: Path, folder: Path) -> None:
    compile_policy(small, environ={})
    base = Path("base.yaml")
    base.unlink()
    match change:
        case "folder":
            base.mkdir()
        case "pipe":
            os.mkfifo(base)
        case "broken":
            base.write_text("a: [")
    with pytest.raises(PolicyError) as known:
        compile_policy(small, environ={})
    with pytest.raises(PolicyError) as fresh:
        compile_policy(small, environ={}, cache=False)
    assert known.value.diagnostics == fresh.value.diagnostics


def test_environment_is_an_input(small: Path, folder: Path, compiled: Counted) -> None:
    def read_param(environ: dict[str, str]) -> object:
        return compile_policy(small, environ=environ).policy.params["most"].value

    environs: list[dict[str, str]] = [{}, {"MOST": "5"}, {"MOST": "5"}, {}]
    assert list(map(read_param, environs)) == [3, 5, 5, 3]
    assert compiled.times == 3
    with pytest.raises(PolicyError):
        compile_policy(small, environ={"MOST": "many"})
    assert read_param({}) == 3
    assert compiled.times == 4


def test_process_environment_is_an_input(
    small: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOST", raising=False)
    assert compile_policy(small).policy.params["most"].value == 3
    monkeypatch.setenv("MOST", "9")
    assert compile_policy(small).policy.params["most"].value == 9


def test_order_of_several_policies_is_an_input(small: Path, folder: Path) -> None:
    Path("other.yaml").write_text(BASE.replace("3", "7").replace("base", "other"))

    def read_param(*names: str) -> object:
        return compile_policy(names, environ={}).policy.params["most"].value

    for _ in range(2):
        assert read_param("policy.yaml", "other.yaml") == 7
        assert read_param("other.yaml", "policy.yaml") == 3


def test_same_name_in_two_folders_is_two_policies(
    small: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_policy(small, environ={})
    other = tmp_path / "other"
    other.mkdir()
    (other / "policy.yaml").write_text(BASE)
    monkeypatch.chdir(other)
    assert compile_policy(small, environ={}).policy.name == "base"
    monkeypatch.chdir(tmp_path / "project")
    assert compile_policy(small, environ={}).policy == first.policy


def test_reports_name_a_file_as_requested(small: Path, folder: Path) -> None:
    Path("base.yaml").write_text(BASE + "rules:\n  x: {when: 'call.hints.read_only', tools: [a]}\n")
    for name in ("policy.yaml", str(small.absolute()), "../project/policy.yaml"):
        for _ in range(2):
            (warning,) = compile_policy(name, environ={}).diagnostics
            assert warning.span.file == os.path.join(os.path.dirname(name), "base.yaml")  # noqa: PTH118, PTH120


def test_pack_is_cached_for_every_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: Counted
) -> None:
    compile_policy("core", environ={})
    monkeypatch.chdir(tmp_path)
    compile_policy("core", environ={})
    assert compiled.times == 1
    with pytest.raises(PolicyError):
        compile_policy(Path("core"), environ={})  # a file, which is not there


def test_tool_schemas_are_an_input(small: Path, folder: Path, compiled: Counted) -> None:
    def tools(kind: str) -> None:
        schema = {"type": "object", "properties": {"count": {"type": kind}}, "required": ["count"]}
        listed = [{"name": "fetch", "inputSchema": schema}]
        Path("tools.json").write_text(json.dumps({"tools": listed}))

    small.write_text(RULE + "schemas: tools.json\n")
    tools("integer")
    fresh, known = compile_twice(small, {}, compiled)
    assert_same(fresh, known)
    tools("string")
    with pytest.raises(PolicyError, match="int"):
        compile_policy(small, environ={})


def test_changed_compiler_recompiles(
    small: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, compiled: Counted
) -> None:
    compile_policy(small, environ={})
    monkeypatch.setattr(cache, "_compiler_digest", lambda *packages: b"another")
    compile_policy(small, environ={})
    assert compiled.times == 2
    assert len(list(folder.iterdir())) == 2


def test_code_change_is_detected_despite_same_size_and_time(tmp_path: Path) -> None:
    """Installers may reset times, and a fix may keep the size."""
    file = tmp_path / "rule.py"
    file.write_text("a < b")
    os.utime(file, (1, 1))
    before = cache._file_stamps(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    assert cache._file_stamps(tmp_path) == before
    time.sleep(0.02)  # the system's clock for files is coarse
    file.write_text("a > b")
    os.utime(file, (1, 1))
    assert cache._file_stamps(tmp_path) != before


def test_a_change_of_a_schema_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas are beside the code, and hold the defaults of the language."""
    (tmp_path / "policy.schema.json").write_text("{}")
    monkeypatch.setattr(schemas, "__path__", [str(tmp_path)])
    find_digest = cache._compiler_digest.__wrapped__  # kept for the life of a process
    before = find_digest()
    assert find_digest() == before
    (tmp_path / "policy.schema.json").write_text('{"type": "object"}')
    assert find_digest() != before


# Entries that are not used


def test_cache_can_be_disabled(
    small: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, compiled: Counted
) -> None:
    compile_policy(small, environ={}, cache=False)
    Guard.load(small, cache=False)
    assert not folder.exists()
    monkeypatch.setenv("POLICYGUARD_CACHE", "off")
    compile_policy(small, environ={})
    Guard.load(small, cache=True)
    assert not folder.exists()
    assert compiled.times == 4
    monkeypatch.setenv("POLICYGUARD_CACHE", str(folder))
    Guard.load(small)
    Guard.load(small, cache=True)
    Guard.load(small, store=small.with_name("state.db"))
    assert compiled.times == 5


@pytest.mark.parametrize(
    ("writable", "names", "caches"),
    [
        ("policyguard", ["core"], True),
        ("", ["core"], False),
        ("small", ["small"], True),
        ("small", ["core", "small"], True),
        ("small", ["small", "core"], False),  # the last overrides the others
        ("", ["small"], False),
    ],
)
def test_by_default_a_forged_entry_gains_nothing(
    small: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    writable: str,
    names: list[str],
    caches: bool,
) -> None:
    """Modes do not bind root, so the answer of the system is replaced."""
    answers = {Path(cache.__file__).parents[1]: "policyguard", small: "small"}
    monkeypatch.setattr(os, "access", lambda path, mode, **_: answers[Path(path)] == writable)
    Guard.load([small if name == "small" else name for name in names])
    assert folder.exists() is caches


def test_policy_with_errors_is_not_cached(small: Path, folder: Path) -> None:
    small.write_text(RULE.replace("call.args", "cal.args"))
    for _ in range(2):
        with pytest.raises(PolicyError, match="unknown variable `cal`"):
            compile_policy(small, environ={})
    assert not folder.exists()


@pytest.mark.parametrize("value", [2**70, "\ud800", {"a", "b"}, 1j])
def test_unencodable_values_are_not_cached(value: Any, small: Path, folder: Path) -> None:
    compiled_policy = compile_policy(small, environ={}, cache=False)
    changed = replace(compiled_policy.policy, lists={"odd": (value,)})
    location = cache.locate_entry("policy", [small])
    assert location is not None
    cache.store_policy(location, replace(compiled_policy, policy=changed))
    assert location.get(CachedPolicy, {}) is None
    cache.store_policy(location, compiled_policy)
    assert location.get(CachedPolicy, {}) is not None


def test_missing_cache_folder_is_not_an_error(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "below", Path("/proc/cache"), tmp_path / ("x" * 300)):
        monkeypatch.setenv("POLICYGUARD_CACHE", str(path))
        assert compile_policy(small, environ={}).policy.name == "small"
    monkeypatch.delenv("POLICYGUARD_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    assert compile_policy(small, environ={}).policy.name == "small"


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_changed_files_of_a_cached_policy_raise(small: Path, folder: Path) -> None:
    compile_policy(small, environ={})
    known = compile_policy(small, environ={})
    Path("base.yaml").write_text(BASE.replace("3", "4"))
    with pytest.raises(PolicyError, match="changed since"):
        _ = known.merged


# Forged entries


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_entry_is_rebuilt(
    small: Path, folder: Path, compiled: Counted, data: st.DataObject
) -> None:
    fresh = compile_policy(small, environ={})
    (file,) = folder.iterdir()
    whole = bytearray(file.read_bytes())
    index = data.draw(st.integers(0, len(whole) - 1))
    whole[index] ^= data.draw(st.integers(1, 255))
    file.write_bytes(bytes(whole))
    before = compiled.times
    assert compile_policy(small, environ={}).policy == fresh.policy
    assert compiled.times == before + 1
    assert file.read_bytes() != bytes(whole)


def forge(folder: Path, data: bytes) -> None:
    """Replace the content of the only entry."""
    (file,) = folder.iterdir()
    FileCache(folder).put(file.name, data)


def entry(folder: Path) -> CachedPolicy:
    (file,) = folder.iterdir()
    data = FileCache(folder).get(file.name)
    assert data is not None
    return msgspec.msgpack.decode(data, type=CachedPolicy)


DEEP = b"\x91" * 100_000


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\xc0", b"\x90", b"\x80", DEEP, b"\x91\x92" + DEEP, b"\xff" * 100]
)
def test_invalid_entry_is_ignored(
    data: bytes, small: Path, folder: Path, compiled: Counted
) -> None:
    fresh = compile_policy(small, environ={})
    forge(folder, data)
    assert compile_policy(small, environ={}).policy == fresh.policy
    assert compiled.times == 2


@settings(
    max_examples=examples(300, 10), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_entry_with_arbitrary_values_is_used_or_ignored(
    small: Path, folder: Path, data: st.DataObject
) -> None:
    """The policy comes from the entry or from its files, whatever the entry contains."""
    compile_policy(small, environ={})
    value = msgspec.to_builtins(entry(folder), builtin_types=(bytes,))
    items: list[tuple[Any, Any]] = []
    _list_items(value, items)
    around, key = data.draw(st.sampled_from(items))
    around[key] = data.draw(st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text()))
    try:
        forged = msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        return
    forge(folder, forged)
    assert isinstance(compile_policy(small, environ={}), CompiledPolicy)


def _list_items(value: Any, found: list[tuple[Any, Any]]) -> None:
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            _list_items(value[key], found)


@pytest.mark.parametrize("bound", ["sessions", "plans", "in_flight", "window_entries"])
def test_invalid_bound_is_ignored(bound: str, small: Path, folder: Path, compiled: Counted) -> None:
    fresh = compile_policy(small, environ={})
    value = msgspec.to_builtins(entry(folder), builtin_types=(bytes,))
    policy = next(part for part in value if isinstance(part, dict) and "bounds" in part)
    policy["bounds"][bound] = 0
    forge(folder, msgspec.msgpack.encode(value))
    assert compile_policy(small, environ={}).policy == fresh.policy
    assert compiled.times == 2


def test_expressions_of_another_policy_are_ignored(
    small: Path, folder: Path, compiled: Counted
) -> None:
    compile_policy(small, environ={})
    known = entry(folder)
    forge(folder, msgspec.msgpack.encode(replace(known, expressions={})))
    assert compile_policy(small, environ={}).policy == known.policy
    assert compiled.times == 2


def test_forged_reads_of_an_expression_have_no_effect(small: Path, folder: Path) -> None:
    compile_policy(small, environ={})
    known = entry(folder)
    ((source, outline),) = known.expressions.items()
    changed = replace(outline, reads=frozenset({"__class__", "call.__class__"}))
    forge(folder, msgspec.msgpack.encode(replace(known, expressions={source: changed})))
    compiled_policy = compile_policy(small, environ={})
    session = Guard(compiled_policy).session("s")
    assert session.check("fetch", {"count": 1}).allowed
    assert not session.check("fetch", {"count": 9}).allowed


@pytest.mark.parametrize("tree", [b"", b"\xc1", DEEP, msgspec.msgpack.encode(["Unknown", 1])])
def test_forged_bytes_of_a_tree_refuse_calls(tree: bytes, small: Path, folder: Path) -> None:
    compile_policy(small, environ={})
    known = entry(folder)
    ((source, outline),) = known.expressions.items()
    changed = replace(outline, encoded_tree=tree)
    forge(folder, msgspec.msgpack.encode(replace(known, expressions={source: changed})))
    session = Guard(compile_policy(small, environ={})).session("s")
    decision = session.check("fetch", {"count": 1})
    assert not decision.allowed
    assert decision.errors


@pytest.mark.parametrize("command", ["ls -la", "sleep 5", "rmdir x", ""])
def test_shortcut_decides_as_the_compiled_expression(
    command: str, folder: Path, compiled: Counted
) -> None:
    fresh = Guard(compile_policy("core", environ={})).session("s")
    known = Guard(compile_policy("core", environ={})).session("s")
    assert compiled.times == 1
    for tool in ("bash", "unheard_of", "write_stdin", "transfer_to_x", "run_query"):
        arguments = {"command": command, "sql": "select 1"}
        for _ in range(3):
            one, other = fresh.check(tool, arguments), known.check(tool, arguments)
            assert (one.effect, one.message) == (other.effect, other.message)


texts = st.one_of(
    st.sampled_from(
        [
            "__import__('os')",
            "x); import os; (",
            "call'",
            'call"\n    import os',
            "__class__",
            "exec",
            "lambda: 0",
            "\\",
            "\r\n",
            "é",
        ]
    ),
    st.text(max_size=8),
)
DECLARED = st.sampled_from(
    [
        Declarations({"call": DYN}),
        Declarations({"call": DYN}, attributes={"call": "call", "call.args": "held"}),
    ]
)
SOURCES = (
    "call.args.count > 3 && has(call.args.x.y) || call.tool in ['a', 'b']",
    "call.args.l.exists(x, x.startsWith('a') && size(x) > 1) ? call.args.m : -call.args.n",
    "call.strings.all(x, y, x == y) && {'a': 1}[call.tool] + 2u > 1.5",
    "call.args.t.matches('a+') && call.args.u.map(x, x + 'y').filter(z, z != '').size() == 0",
)


@settings(max_examples=examples(400, 10))
@given(st.sampled_from(SOURCES), st.data())
def test_forged_tree_cannot_inject_code(source: str, data: st.DataObject) -> None:
    """Generated code calls only allowed functions, whatever the tree contains."""
    tree = parse_cel(source, lambda *_: None)
    value = msgspec.to_builtins(tree, builtin_types=(bytes,))
    items: list[tuple[Any, Any]] = []
    _list_items(value, items)
    words = [(around, key) for around, key in items if isinstance(around[key], str)]
    for around, key in data.draw(st.lists(st.sampled_from(words), min_size=1, max_size=4)):
        around[key] = data.draw(texts)
    try:
        forged = msgspec.convert(value, Expression)
        program = compile_cel(source, data.draw(DECLARED), check=False, tree=forged)
    except (msgspec.ValidationError, CelError, KeyError, UnicodeError):
        return
    module = ast.parse(program.code)
    assert all(isinstance(node, ast.FunctionDef) for node in module.body)
    assert {node.name for node in module.body} <= {"evaluate", "evaluate_absorbing"}
    namespace = program.function.__globals__
    assert namespace["__builtins__"] == {}
    for node in ast.walk(module):
        assert not isinstance(node, ast.Import | ast.ImportFrom | ast.Lambda | ast.Global)
        if isinstance(node, ast.Attribute):
            allowed = {"__class__", "startswith", "endswith", "search", "append", "call", "held"}
            allowed |= {"equals", "is_in", "run"}  # of the meter
            assert node.attr in allowed, program.code
    assert not any(name.startswith("__") for name in namespace.keys() - {"__builtins__"})
    assert RUNTIME.keys() <= namespace.keys()


# Imports


def run(code: str, folder: Path) -> str:
    environment = {**os.environ, "POLICYGUARD_CACHE": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


HEAVY = "{'celpy', 'lark', 'jsonschema', 'yaml', 'asyncio', 'click', 'logging'}"


@pytest.mark.parametrize("name", [None, "store.db"])
def test_cached_policy_loads_without_parsers(
    small: Path, folder: Path, tmp_path: Path, name: str | None
) -> None:
    store = name and str(tmp_path / name)
    code = f"""
import sys
from policyguard import Guard
session = Guard.load({str(small.absolute())!r}, store={store!r}, cache=True).session("s")
decision = session.check("fetch", {{"count": 9}})
print(decision.effect, sorted(({HEAVY} | {{'sqlite3'}}) & sys.modules.keys()))
"""
    if store is None or THOROUGH:
        assert run(code, folder).startswith("block ['jsonschema', 'lark',")
    compile_policy(small.absolute())
    known = run(code, folder)
    assert known == f"block {[] if store is None else ['sqlite3']}\n"


@pytest.mark.parametrize("name", [None, "store.db"])
def test_first_check_of_cached_core_compiles_no_expression_and_no_pattern(
    folder: Path, tmp_path: Path, name: str | None
) -> None:
    """What compiles them takes a fifth of the time of such a process, and `json` a fiftieth."""
    store = name and str(tmp_path / name)
    code = f"""
import sys
from policyguard import Guard
session = Guard.load("core", store={store!r}, cache=True).session("s")
decision = session.check("bash", {{"command": "ls -la"}})
parts = ("check", "codegen", "declarations", "functions.standard", "program", "syntax")
compiling = {{f"policyguard.cel.{{part}}" for part in parts}}
print(decision.effect, sorted((compiling | {{'re2', 'json'}}) & sys.modules.keys()))
"""
    compile_policy("core")
    assert run(code, folder) == "allow []\n"


@pytest.mark.parametrize("may_write", [True, False])
def test_table_of_the_parser_is_kept_where_nothing_is_gained(folder: Path, may_write: bool) -> None:
    """It is used for all policies, so it is not enough that the user may write one of them."""
    code = f"""
import os
from pathlib import Path
from policyguard.compiler import cache, check_policy
os.access = lambda path, mode, **_: {may_write} or Path(path) != cache._CODE
assert check_policy("core")[0] is not None
from lark import Lark
Lark.__init__ = None
from policyguard.cel.syntax import parse
parse._parser = None
parse._parse_once.cache_clear()
print(parse.parse("a == b", print) is not None)
"""
    if may_write:
        assert run(code, folder).endswith("True\n")
        (table,) = folder.iterdir()
        assert table.stat().st_mode & 0o777 == 0o600
    else:
        with pytest.raises(AssertionError, match="NoneType"):
            run(code, folder)
        assert not folder.exists()


def test_cached_lint_runs_without_parsers(small: Path, folder: Path) -> None:
    code = f"""
import sys
from policyguard.cli import main
try:
    main(["lint", {str(small.absolute())!r}])
finally:
    print(sorted({{'lark', 'jsonschema'}} & sys.modules.keys()))
"""
    fresh, known = run(code, folder), run(code, folder)
    assert fresh.endswith("['jsonschema', 'lark']\n")
    assert known == fresh.replace(fresh.splitlines()[-1], "[]")


# Lint


@pytest.mark.parametrize(
    "case",
    [*some(LINTED, 8), *slow_but((Path("research-agent"),), map(Path, PACKS))],
    ids=str,
)
def test_cached_lint_reports_the_same(
    case: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, compiled: Counted
) -> None:
    if case.name != "policy.yaml":
        inside = "" if case.name == "core" else "packs/"
        case = ROOT / "policies" / f"{inside}{case.name}" / "policy.yaml"
    monkeypatch.chdir(case.parent)
    fresh = lint_paths([Path("policy.yaml")])
    loads = all(one.code.startswith("lint/") for one in errors(fresh.diagnostics))
    before = compiled.times
    known = lint_paths([Path("policy.yaml")])
    assert known == fresh
    assert (compiled.times == before) is loads
    chosen = lint_paths([Path("policy.yaml")], select=["lint"])
    assert chosen.diagnostics == [
        one for one in fresh.diagnostics if one.code.startswith("lint/") or one in errors([one])
    ]


def errors(diagnostics: Any) -> list[Any]:
    return [one for one in diagnostics if one.severity == "error"]


def test_lint_runs_again_after_a_change(small: Path, folder: Path, compiled: Counted) -> None:
    assert not errors(lint_paths([small]).diagnostics)
    assert lint_paths([small]) == lint_paths([small])
    assert compiled.times == 1
    Path("base.yaml").write_text(BASE.replace("most", "least"))
    assert errors(lint_paths([small]).diagnostics)
    Path("base.yaml").write_text(BASE)
    assert not errors(lint_paths([small]).diagnostics)
    assert compiled.times == 2
