"""A test file → its suite, or the diagnostics of the file and its policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from policyguard.compiler import CompiledPolicy, check_policy, check_tree, compile_policy
from policyguard.compiler.inputs import PACK_NAME
from policyguard.compiler.load.layer_validation import diagnose, find_span
from policyguard.engines.source import SourceText, read_source
from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import MappingNode as Tree
from policyguard.engines.yaml_tree import Node, ScalarNode, SequenceNode, descend, to_plain
from policyguard.model.diagnostic import Diagnostic, PolicyError, Span
from policyguard.testing import schema
from policyguard.testing.suite import (
    ExpectedCall,
    SessionSpec,
    Step,
    Suite,
    Test,
    resolve_reference,
)
from policyguard.testing.suite_validation import validate, validate_marks

_NONFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class ReadResult(NamedTuple):
    """A suite, None if there are errors, and the diagnostics."""

    suite: Suite | None
    diagnostics: list[Diagnostic]


def read_suite(file: str | Path) -> ReadResult:
    """Read a test file and compile its policy. Raises nothing: all errors are diagnostics."""
    root, found = parse_file(file)
    if root is None:
        return ReadResult(None, found)
    suite, more = build_suite(root)
    return ReadResult(None if found else suite, found + more)


def parse_file(file: str | Path) -> tuple[Node | None, list[Diagnostic]]:
    """Return the file's tree, and the diagnostics of its YAML."""
    name = str(file)
    try:
        data = read_source(Path(file))
    except OSError as error:
        message = f"`{name}`: {(error.strerror or 'cannot be read').lower()}"
        source = SourceText(name, "")
        return None, [source.diagnostic("load/unreadable", message, source.span(0, 0))]
    parsed = parse(data, name, empty_hint="tests begin with `policy: policy.yaml` and `tests: …`")
    if parsed.root is None:
        return None, parsed.diagnostics
    return _allow_nonfinite(parsed.root, parsed.diagnostics)


def build_suite(root: Node) -> ReadResult:
    """Validate a file's tree, and compile its policy."""
    if isinstance(root, Tree) and "policyguard" in root and "tests" not in root:
        span = root.key_node("policyguard").span
        message = "this is a policy; pass its tests"
        hint = "tests are in a file such as `tests.yaml`; `policyguard lint` checks a policy"
        code = "schema/unknown-key"
        return ReadResult(None, [root.source.diagnostic(code, message, span, hint=hint)])
    diagnostics = [diagnose(root, problem) for problem in schema.checker().validate(to_plain(root))]
    fits_schema = not diagnostics
    diagnostics += schema.find_unsupported(root)
    tests = _read_tests(root) if fits_schema else ()
    diagnostics += validate(root, tests)
    policy = root.get("policy") if isinstance(root, Tree) else None
    if policy is None or not _is_policy(policy):
        return ReadResult(None, diagnostics)
    compiled, found = _compile(policy, _read_environ(root))
    diagnostics += [diagnostic for diagnostic in found if diagnostic.severity == "error"]
    if compiled is None:
        return ReadResult(None, diagnostics)
    diagnostics += _validate_grants(root, tests, compiled)
    diagnostics += validate_marks(root, tests, compiled)
    return ReadResult(None if diagnostics else Suite(root, compiled, tests), diagnostics)


def _is_policy(policy: Node) -> bool:
    """Return whether `policy` can be compiled, whatever else is wrong in the file."""
    return isinstance(policy, Tree) or (
        isinstance(policy, ScalarNode) and isinstance(policy.value, str)
    )


def _read_environ(root: Node) -> dict[str, str]:
    """Return the tests' own variables; no others, so that results are reproducible."""
    environ, rest = descend(root, ("environ",))
    if rest or not isinstance(environ, Tree):
        return {}
    return {key.text: value.text for key, value in environ.entries if isinstance(value, ScalarNode)}


def _compile(
    policy: Node, environ: Mapping[str, str]
) -> tuple[CompiledPolicy | None, Iterable[Diagnostic]]:
    if isinstance(policy, Tree):
        return check_tree(_add_header(policy), environ=environ)
    assert isinstance(policy, ScalarNode)  # noqa: S101 - checked by the caller
    name: str | Path = policy.text
    if not PACK_NAME.fullmatch(policy.text):
        name = resolve_reference(policy.source.file, policy.text)
    compiled: CompiledPolicy | None = None
    found: Sequence[Diagnostic] = ()
    if environ:  # in the cache it would replace the policy in use
        compiled, found = check_policy(name, environ=environ)
    else:
        try:
            compiled = compile_policy(name, environ=environ)
        except PolicyError as error:
            found = error.diagnostics
    return compiled, [_move_to_reference(diagnostic, str(name), policy) for diagnostic in found]


def _move_to_reference(found: Diagnostic, name: str, policy: ScalarNode) -> Diagnostic:
    """Place the diagnostic of an unreadable file at the reference to it."""
    if found.span.file != name or any(found.lines) or not found.code.startswith("load/"):
        return found
    return policy.source.diagnostic(found.code, found.message, policy.span, hint=found.help)


def _add_header(policy: Tree) -> Tree:
    """Add the keys that an inline policy may omit."""
    header: dict[str, str | int] = {"policyguard": 1, "name": _default_name(policy.source.file)}
    added = [
        (_scalar(policy, key), _scalar(policy, value))
        for key, value in header.items()
        if key not in policy
    ]
    return policy.with_entries([*added, *policy.entries])


def _default_name(file: str) -> str:
    """Return the default name of an inline policy: that of its file."""
    return Path(file).name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".tests")


def _scalar(parent: Tree, value: str | int) -> ScalarNode:
    return ScalarNode(parent.source, parent.start, parent.start, "", str(value), value)


def _read_tests(root: Node) -> tuple[Test, ...]:
    """Convert the tests of a file that fits the schema."""
    tests: list[dict[str, Any]] = to_plain(root)["tests"]
    return tuple(_read_test(index, test) for index, test in enumerate(tests))


def _read_test(index: int, test: dict[str, Any]) -> Test:
    path = ("tests", index)
    steps = [
        # `Step` has no unsupported keys; they have been reported.
        {key: value for key, value in step.items() if key not in schema.unsupported_keys()}
        | {"path": (*path, "steps", index)}
        for index, step in enumerate(test.get("steps", ()))
    ]
    expect = [
        call | {"path": (*path, "expect", index)}
        for index, call in enumerate(test.get("expect", ()))
    ]
    rest = {key: value for key, value in test.items() if key not in ("steps", "expect")}
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
    """Yield a diagnostic for each grant that the policy does not support."""
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
                message = f"budget `{name}` has no `extend`; give an amount"
                hint = f"write `[{name}, 1]`"
                yield root.source.diagnostic("schema/missing-key", message, span, hint=hint)


def _allow_nonfinite(root: Node, diagnostics: list[Diagnostic]) -> tuple[Node, list[Diagnostic]]:
    """Convert NaN and infinity in the tests of a file, and drop the diagnostics about them.

    Policies forbid them, but a tool may report such a score, and a model send such an argument.
    """
    if not isinstance(root, Tree):
        return root, diagnostics
    spans: set[Span] = set()
    tree = root.with_entries(
        (key, _convert(value, spans) if key.text == "tests" else value)
        for key, value in root.entries
    )
    kept = [one for one in diagnostics if one.code != "yaml/number" or one.span not in spans]
    return tree, kept


def _convert(node: Node, spans: set[Span]) -> Node:
    if isinstance(node, Tree):
        return node.with_entries((key, _convert(value, spans)) for key, value in node.entries)
    if isinstance(node, SequenceNode):
        return node.with_items(_convert(item, spans) for item in node.items)
    if node.style or not _NONFINITE.fullmatch(node.text):
        return node
    spans.add(node.span)
    return replace(node, value=float(node.text.replace(".", "", 1)))
