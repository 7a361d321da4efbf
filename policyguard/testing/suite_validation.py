"""Validation of a test file beyond its schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.load.layer_validation import find_span
from policyguard.engines.yaml_tree import Node, descend
from policyguard.engines.yaml_tree import Path as TreePath
from policyguard.guard.sessions.marks import find_mark
from policyguard.model.diagnostic import Diagnostic, did_you_mean
from policyguard.model.effect import Effect
from policyguard.testing.suite import (
    MAIN_SESSION,
    Step,
    Test,
    list_marks,
    parse_instant,
    resolve_reference,
)

_RESULT_KEYS = ("outcome", "text", "advice")
"""Keys with expectations of a call that has returned."""


def validate(root: Node, tests: Iterable[Test]) -> Iterator[Diagnostic]:
    """Yield everything wrong with tests that fit the schema."""
    names: set[str] = set()
    for test in tests:
        if test.name in names:
            message = f"duplicate test name `{test.name}`"
            yield _diagnostic(root, "reference/duplicate-id", message, (*test.path, "name"))
        names.add(test.name)
        yield from _validate_sessions(root, test)
        for step in test.steps:
            yield from _validate_step(root, test, step)
        yield from _validate_returns(root, test)
        yield from _validate_trace(root, test)


def _validate_sessions(root: Node, test: Test) -> Iterator[Diagnostic]:
    if test.session.at is not None and parse_instant(test.session.at) is None:
        path = (*test.path, "session", "at")
        yield _diagnostic(root, "schema/value", f"`{test.session.at}` is not a valid time", path)
    earlier = [MAIN_SESSION]
    for name, spec in test.sessions.items():
        path = (*test.path, "sessions", name)
        if name == MAIN_SESSION:
            message = f"`{MAIN_SESSION}` is the test's own session"
            hint = "describe it under `session`"
            yield _diagnostic(root, "schema/conflict", message, path, hint=hint, key=True)
        if spec.parent is not None and spec.parent not in earlier:
            message = f"no earlier session `{spec.parent}`"
            suggestion = did_you_mean(spec.parent, earlier)
            yield _diagnostic(root, "schema/value", message, (*path, "parent"), hint=suggestion)
        earlier.append(name)


def _validate_step(root: Node, test: Test, step: Step) -> Iterator[Diagnostic]:
    if step.in_ != MAIN_SESSION and step.in_ not in test.sessions:
        known = [MAIN_SESSION, *test.sessions]
        hint = did_you_mean(step.in_, known) or f"add it to the test's `sessions`: {step.in_}: {{}}"
        message = f"this test has no session `{step.in_}`"
        yield _diagnostic(root, "schema/value", message, (*step.path, "in"), hint=hint)
    if step.effect is not None and step.effect >= Effect.ASK:
        for key in ("result", "running", "as", "release", *_RESULT_KEYS):
            path = (*step.path, key)
            if not descend(root, path)[1]:
                message = f"a call answered with `{step.effect}` has no `{key}`"
                hint = "remove it: the call does not run"
                yield _diagnostic(root, "schema/conflict", message, path, hint=hint, key=True)
    if step.call is None and step.returns is None:
        for key in ("result", *_RESULT_KEYS):
            path = (*step.path, key)
            if not descend(root, path)[1]:
                message = f"`{key}` needs `call` or `returns` in the same step"
                yield _diagnostic(root, "schema/missing-key", message, path, key=True)
    if step.result.ok and step.result.error is not None:
        message = "`ok: true` contradicts `error`"
        yield _diagnostic(
            root, "schema/conflict", message, (*step.path, "result", "error"), key=True
        )


def _validate_returns(root: Node, test: Test) -> Iterator[Diagnostic]:
    """Check that each call that returns is running, and returns once."""
    running: Counter[str] = Counter()
    for step in test.steps:
        name = step.returns
        if step.as_ is not None:
            running[step.as_] += step.times
        if name is None:
            continue
        if not running[name]:
            message = f"no running call is named `{name}`"
            hint = did_you_mean(name, +running) or f"add `as: {name}` to the step that makes it"
            yield _diagnostic(root, "schema/value", message, (*step.path, "returns"), hint=hint)
        running[name] -= 1


def _validate_trace(root: Node, test: Test) -> Iterator[Diagnostic]:
    if test.trace is None:
        return
    file = resolve_reference(root.source.file, test.trace)
    if not file.is_file():
        hint = did_you_mean(file.name, _sibling_names(file))
        yield _diagnostic(
            root, "load/not-found", f"no file `{file}`", (*test.path, "trace"), hint=hint
        )
    for number, item in enumerate(test.refused):
        first, _, last = str(item).partition("-")
        if last and int(first) > int(last):
            message = f"the range `{item}` is reversed"
            hint = f"write `{last}-{first}`"
            yield _diagnostic(
                root, "schema/value", message, (*test.path, "refused", number), hint=hint
            )


def validate_marks(
    root: Node, tests: Iterable[Test], compiled: CompiledPolicy
) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each mark that the policy does not have, or not so."""
    for test in tests:
        for path, name, key, clears in _iter_marks(test):
            try:
                find_mark(compiled.evaluator.marks, name, key, clears=clears)
            except KeyError:
                known = list(compiled.evaluator.marks)
                message = f"no mark `{name}` in the policy"
                hint = did_you_mean(name, known)
                yield _diagnostic(root, "reference/unknown-mark", message, path, hint=hint)
            except ValueError as error:
                yield _diagnostic(root, "reference/mark", str(error), path)
        for step in test.steps:
            for index, name in enumerate(step.state.get("marks", ())):
                if name not in compiled.evaluator.marks:
                    path = (*step.path, "state", "marks", index)
                    message = f"no mark `{name}` in the policy"
                    hint = did_you_mean(name, compiled.evaluator.marks)
                    yield _diagnostic(root, "reference/unknown-mark", message, path, hint=hint)


def _iter_marks(test: Test) -> Iterator[tuple[TreePath, str, str | None, bool]]:
    """Yield each mark that a test names: its path, name and key, and whether it is cleared."""
    specs = [((*test.path, "session"), test.session)]
    specs += [((*test.path, "sessions", name), spec) for name, spec in test.sessions.items()]
    for path, spec in specs:
        for name, key in list_marks(spec.marks):
            place = name if isinstance(spec.marks, dict) else spec.marks.index(name)
            yield (*path, "marks", place), name, key, False
    for step in test.steps:
        for kind in ("mark", "unmark"):
            given = getattr(step, kind)
            if given is not None:
                name, key = (given, None) if isinstance(given, str) else given
                yield (*step.path, kind), name, key, kind == "unmark"


def _sibling_names(file: Path) -> list[str]:
    return [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []


def _diagnostic(
    root: Node,
    code: str,
    message: str,
    path: TreePath,
    *,
    hint: str | None = None,
    key: bool = False,
) -> Diagnostic:
    return root.source.diagnostic(code, message, find_span(root, path, key=key), hint=hint)
