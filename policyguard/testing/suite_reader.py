"""A tests file → its suite, or everything that is wrong with it and with its policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from policyguard.compiler import CompiledPolicy, check_policy, check_tree
from policyguard.compiler.inputs import PACK_NAME
from policyguard.compiler.load.layer_validation import diagnose, find_span
from policyguard.engines.source import MAX_FILE_BYTES, Source
from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import MappingNode as Tree
from policyguard.engines.yaml_tree import Node, ScalarNode, descend, to_plain
from policyguard.model.diagnostic import Diagnostic
from policyguard.testing import schema
from policyguard.testing.nonfinite_numbers import allow_nonfinite
from policyguard.testing.referenced_files import resolve_reference
from policyguard.testing.suite import ExpectedCall, SessionSpec, Step, Suite, Test
from policyguard.testing.suite_validation import validate


class ReadResult(NamedTuple):
    """A suite, or None where a diagnostic is an error."""

    suite: Suite | None
    diagnostics: list[Diagnostic]


def read_suite(file: str | Path) -> ReadResult:
    """Read a tests file and compile its policy. Raises nothing: what is wrong is a diagnostic."""
    root, found = parse_file(file)
    if root is None:
        return ReadResult(None, found)
    suite, more = build_suite(root)
    return ReadResult(None if found else suite, found + more)


def parse_file(file: str | Path) -> tuple[Node | None, list[Diagnostic]]:
    """The file's tree, and what is wrong with it as YAML."""
    shown = str(file)
    try:
        with Path(file).open("rb") as handle:
            data = handle.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        message = f"`{shown}`: {(error.strerror or 'cannot be read').lower()}"
        source = Source(shown, "")
        return None, [source.diagnostic("load/unreadable", message, source.span(0, 0))]
    parsed = parse(data, shown)
    found = [_reword(one) for one in parsed.diagnostics]
    return (None, found) if parsed.root is None else allow_nonfinite(parsed.root, found)


def build_suite(root: Node) -> ReadResult:
    """Check a file's tree, and compile its policy."""
    diagnostics = [diagnose(root, problem) for problem in schema.checker().validate(to_plain(root))]
    sound = not diagnostics
    diagnostics += schema.find_unsupported(root)
    tests = _read_tests(root) if sound else ()
    diagnostics += validate(root, tests)
    policy = root.get("policy") if isinstance(root, Tree) else None
    if policy is None or not _is_policy(policy):
        return ReadResult(None, diagnostics)
    compiled, found = _compile(policy, _read_environ(root))
    diagnostics += [one for one in found if one.severity == "error"]
    if compiled is None:
        return ReadResult(None, diagnostics)
    diagnostics += _validate_grants(root, tests, compiled)
    return ReadResult(None if diagnostics else Suite(root, compiled, tests), diagnostics)


def _reword(found: Diagnostic) -> Diagnostic:
    """The YAML reader speaks of policies, which is what it mostly reads."""
    message = found.message.replace(
        "there is no policy in the file", "there is nothing in the file"
    )
    hint = found.help and found.help.replace("a policy is one document", "a file is one document")
    return msgspec.structs.replace(found, message=message, help=hint)


def _is_policy(policy: Node) -> bool:
    """Whether `policy` is something to go on with, whatever else is wrong in the file."""
    return isinstance(policy, Tree) or (
        isinstance(policy, ScalarNode) and isinstance(policy.value, str)
    )


def _read_environ(root: Node) -> dict[str, str]:
    """The variables that the tests give; no others, so that it does not matter who runs them."""
    given, rest = descend(root, ("environ",))
    if rest or not isinstance(given, Tree):
        return {}
    return {key.text: value.text for key, value in given.entries if isinstance(value, ScalarNode)}


def _compile(
    policy: Node, environ: Mapping[str, str]
) -> tuple[CompiledPolicy | None, Iterable[Diagnostic]]:
    if isinstance(policy, Tree):
        return check_tree(_add_header(policy), environ=environ)
    assert isinstance(policy, ScalarNode)  # noqa: S101 - the caller has asked
    name: str | Path = policy.text
    if not PACK_NAME.fullmatch(policy.text):
        name = resolve_reference(policy.source.file, policy.text)
    compiled, found = check_policy(name, environ=environ)
    return compiled, [_place_at_reference(one, str(name), policy) for one in found]


def _place_at_reference(found: Diagnostic, name: str, policy: ScalarNode) -> Diagnostic:
    """A file that could not be read has no place of its own: it is where it was asked for."""
    if found.span.file != name or any(found.lines) or not found.code.startswith("load/"):
        return found
    return policy.source.diagnostic(found.code, found.message, policy.span, hint=found.help)


def _add_header(policy: Tree) -> Tree:
    """A policy within a tests file may leave out what says that it is one."""
    given: dict[str, str | int] = {"policyguard": 1, "name": _default_name(policy.source.file)}
    return policy.with_entries(
        [
            *(
                (_scalar(policy, key), _scalar(policy, value))
                for key, value in given.items()
                if key not in policy
            ),
            *policy.entries,
        ]
    )


def _default_name(file: str) -> str:
    """The name of a policy that has none: that of the file it stands in."""
    return Path(file).name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".tests")


def _scalar(around: Tree, value: str | int) -> ScalarNode:
    return ScalarNode(around.source, around.start, around.start, "", str(value), value)


def _read_tests(root: Node) -> tuple[Test, ...]:
    """The tests, typed; the schema has nothing against them."""
    written: list[dict[str, Any]] = to_plain(root)["tests"]
    return tuple(_read_test(number, test) for number, test in enumerate(written))


def _read_test(number: int, written: dict[str, Any]) -> Test:
    path = ("tests", number)
    steps = [
        # Keys that are not alive have been reported, and the model does not know them.
        {key: value for key, value in step.items() if key not in schema.unsupported_keys()}
        | {"path": (*path, "steps", place)}
        for place, step in enumerate(written.get("steps", ()))
    ]
    expect = [
        call | {"path": (*path, "expect", place)}
        for place, call in enumerate(written.get("expect", ()))
    ]
    rest = {key: value for key, value in written.items() if key not in ("steps", "expect")}
    return Test(
        **{
            **rest,
            "path": path,
            "session": msgspec.convert(rest.get("session", {}), SessionSpec),
            "sessions": msgspec.convert(rest.get("sessions", {}), dict[str, SessionSpec]),
            "refused": tuple(rest.get("refused", ())),
            "steps": msgspec.convert(steps, tuple[Step, ...]),
            "expect": msgspec.convert(expect, tuple[ExpectedCall, ...]),
        }
    )


def _validate_grants(
    root: Node, tests: Iterable[Test], compiled: CompiledPolicy
) -> Iterable[Diagnostic]:
    """Budgets that a test raises and the policy does not have."""
    known = [name.partition("/")[2] for name in compiled.evaluator.budgets]
    for test in tests:
        for step in test.steps:
            if step.grant is None:
                continue
            span = find_span(root, (*step.path, "grant", 0))
            name, amount = step.granted
            budget = compiled.evaluator.budgets.get(f"budgets/{name}")
            if budget is None:
                message = f"no budget `{step.grant[0]}` in the policy"
                hint = "it has: " + ", ".join(f"`{name}`" for name in known) if known else None
                yield root.source.diagnostic("schema/value", message, span, hint=hint)
            elif amount is None and budget.extend is None:
                message = f"budget `{name}` has no `extend`: say how much is granted"
                hint = f"write `[{name}, 1]`"
                yield root.source.diagnostic("schema/missing-key", message, span, hint=hint)
