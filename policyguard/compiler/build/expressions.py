"""All CEL of a policy, checked where it stands and compiled.

Each expression is known by its path in the merged policy, such as `("rules", "no-push", "when")`.
A mistake in one hides none in the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.cel import (
    BOOL,
    DYN,
    NUMBER,
    STRING,
    CelError,
    Declarations,
    Problem,
    Program,
    Type,
)
from policyguard.cel import compile as compile_cel
from policyguard.cel.program import compile_prefilter
from policyguard.cel.syntax.tree import Constant, Expr, TextSpan
from policyguard.compiler.build.cel_env import CelEnvironment
from policyguard.compiler.build.entry_paths import learn_sections
from policyguard.compiler.load import language_version
from policyguard.evaluator.activation import Activation, Expression, Prefilter
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy

if TYPE_CHECKING:
    from policyguard.compiler.check.tool_schemas import ToolCatalog
    from policyguard.compiler.merge.layers import MergedPolicy

Path = tuple[str | int, ...]

_ALWAYS_TRUE = ("true", Constant(TextSpan(0, 4), True))


class ExpressionSpec(msgspec.Struct, frozen=True):
    """One expression of the policy: where it stands, its text, and what it is checked against."""

    path: Path
    source: str
    declarations: Declarations
    expected_type: Type


class ParsedExpression(msgspec.Struct, frozen=True, array_like=True):
    """What is known of an expression that has been compiled before: enough to compile it again."""

    tree: Expr
    reads: frozenset[str]


class LazyProgram:
    """A program of which only the outline is known until it is called for: most never are."""

    def __init__(self, place: ExpressionSpec, outline: ParsedExpression) -> None:
        self.source = place.source
        self.tree = outline.tree
        self.reads = outline.reads
        self._spec = place

    @cached_property
    def program(self) -> Program:
        """Compile it. `CelError` where the tree is not that of the text."""
        place = self._spec
        return compile_cel(
            place.source, place.declarations, expect=place.expected_type, tree=self.tree
        )


class Expressions:
    """The compiled programs by path, and as the evaluator wants them.

    `before` is what those are checked against that are read before the call.
    """

    def __init__(
        self, programs: Mapping[Path, Program | LazyProgram], before: Declarations
    ) -> None:
        self._programs = programs
        self._declarations = before

    def program(self, *path: str | int) -> Program | None:
        """The program at a path; None where the policy has none (or one that does not compile)."""
        program = self._programs.get(path)
        return program.program if isinstance(program, LazyProgram) else program

    def get(self, *path: str | int) -> Expression | None:
        """The same as a function of a view."""
        program = self._programs.get(path)
        return _to_expression(program) if program is not None else None

    def prefilter(self, paths: Iterable[Path]) -> Prefilter:
        """One function for conditions that are read before the call; where none stands, true."""
        conditions = []
        for path in paths:
            program = self._programs.get(path)
            conditions.append(_ALWAYS_TRUE if program is None else (program.source, program.tree))
        return compile_prefilter(conditions, self._declarations)

    def reads(self, *path: str | int) -> frozenset[str]:
        """The dotted fields that the expression at a path reads."""
        program = self._programs.get(path)
        return program.reads if program is not None else frozenset()

    def __iter__(self) -> Iterator[tuple[Path, Program]]:
        """All programs, each with its path."""
        for path, program in self._programs.items():
            yield path, program.program if isinstance(program, LazyProgram) else program

    def sources(self) -> Iterator[str]:
        """The texts of all expressions."""
        return (program.source for program in self._programs.values())

    def all_reads(self) -> frozenset[str]:
        """The dotted fields that any expression reads."""
        return frozenset(field for program in self._programs.values() for field in program.reads)

    def parsed_by_source(self) -> dict[str, ParsedExpression]:
        """What is to be known the next time, by text."""
        return {
            program.source: ParsedExpression(program.tree, program.reads) for _, program in self
        }


def compile_expressions(
    policy: Policy, layered: MergedPolicy, tools: ToolCatalog | None = None
) -> tuple[Expressions, list[Diagnostic]]:
    """Compile every expression of a policy; the diagnostics are errors and warnings of all.

    What is known of the `tools` finds more mistakes. The programs do not rely on it: at run time a
    tool is given what the model has written.
    """
    programs: dict[Path, Program] = {}
    found: list[Diagnostic] = []
    environment = CelEnvironment(policy, layered)
    for place in _list_specs(policy, environment):
        program, problems = _compile(place, place.declarations)
        if program is not None:
            programs[place.path] = program
        if tools is not None:
            _, more = _compile(
                place, tools.refine_declarations(place.path, layered, place.declarations)
            )
            problems = tuple(dict.fromkeys((*problems, *more)))
        found += [_to_diagnostic(problem, place, layered) for problem in problems]
    return Expressions(programs, environment.before_call), found


def restore_expressions(policy: Policy, outlines: Mapping[str, ParsedExpression]) -> Expressions:
    """The expressions of a policy that has been compiled before, from what is known by text.

    Raises `KeyError` where one is not known.
    """
    environment = CelEnvironment(policy, None)
    programs = {
        place.path: LazyProgram(place, outlines[place.source])
        for place in _list_specs(policy, environment)
    }
    return Expressions(programs, environment.before_call)


def reads_field(reads: frozenset[str], field: str) -> bool:
    """Whether one of the dotted fields is `field` or lies in it, or holds it as a whole."""
    return any(
        read == field or read.startswith(f"{field}.") or field.startswith(f"{read}.")
        for read in reads
    )


def _compile(
    place: ExpressionSpec, declarations: Declarations
) -> tuple[Program | None, tuple[Problem, ...]]:
    try:
        program = compile_cel(place.source, declarations, expect=place.expected_type)
    except CelError as error:
        return None, error.problems
    return program, program.warnings


def _list_specs(policy: Policy, environment: CelEnvironment) -> Iterator[ExpressionSpec]:
    before, after = environment.before_call, environment.after_call
    for number, entry in enumerate(policy.classify.classes):
        if entry.when is not None:
            yield ExpressionSpec(("classify", "classes", number, "when"), entry.when, before, BOOL)
    changing = policy.classify.state_changing
    if isinstance(changing, str):
        yield ExpressionSpec(("classify", "state_changing"), changing, before, BOOL)
    if policy.outcomes.failed_when is not None:
        yield ExpressionSpec(
            ("outcomes", "failed_when"), policy.outcomes.failed_when, environment.raw_outcome, BOOL
        )
    for number, rule in enumerate(policy.blame):
        yield ExpressionSpec(("blame", number, "when"), rule.when, after, BOOL)
    for level, limits in policy.limits.items():
        repeat = limits.repeat
        if repeat is not None and repeat != "none" and repeat.key is not None:
            yield ExpressionSpec(
                ("limits", *_level_path(level), "repeat", "key"), repeat.key, before, DYN
            )
    for budget in policy.budgets:
        if budget.when is not None:
            # A place, or time, is taken when the call begins.
            begins = budget.at_once is not None or budget.time is not None
            declarations = before if begins else after
            yield ExpressionSpec(("budgets", budget.id, "when"), budget.when, declarations, BOOL)
        if budget.sum is not None:
            yield ExpressionSpec(("budgets", budget.id, "sum"), budget.sum, after, NUMBER)
        for number, key in enumerate(budget.per.keys):
            yield ExpressionSpec(("budgets", budget.id, "per", number + 1), key, before, STRING)
    for learn, path in learn_sections(policy):
        for field, declarations in (("key", before), ("scope_key", before), ("count_by", after)):
            source = getattr(learn, field)
            if source is not None:
                yield ExpressionSpec((*path, field), source, declarations, STRING)
    for number, radius in enumerate(policy.radius):
        if radius.when is not None:
            yield ExpressionSpec(("radius", number, "when"), radius.when, before, BOOL)
    for guard in policy.rules:
        if guard.when is not None:
            yield ExpressionSpec(("rules", guard.id, "when"), guard.when, before, BOOL)
        if guard.unless is not None:
            yield ExpressionSpec(("rules", guard.id, "unless"), guard.unless, before, BOOL)


def _level_path(level: str) -> tuple[str, ...]:
    """The path of a level of limits: `tools:web_*` stands under `tools`, `web_*`."""
    kind, separator, name = level.partition(":")
    return (kind, name) if separator else (kind,)


def _to_diagnostic(problem: Problem, place: ExpressionSpec, layered: MergedPolicy) -> Diagnostic:
    span = layered.span_within(
        place.path, problem.line, problem.column, problem.end_line, problem.end_column
    )
    waiting = _unsupported_message(problem)
    return Diagnostic(
        code="cel/unsupported" if waiting else f"cel/{problem.code}",
        severity=problem.severity,
        message=waiting or problem.message,
        span=span,
        help=None if waiting else problem.help or _outcome_hint(problem, place),
        lines=layered.lines(span),
    )


def _outcome_hint(problem: Problem, place: ExpressionSpec) -> str | None:
    if problem.code == "undeclared-reference" and "`outcome`" in problem.message:
        early = f"`{place.path[0]}` is"
        if place.path[0] == "budgets":
            early = "`per`, and `when` beside `at_once` or `time`, are"
        return f"{early} read before the call, when it has no outcome yet"
    return None


def _unsupported_message(problem: Problem) -> str:
    """What to say of a name that the language knows and a later step brings to life."""
    if problem.code not in ("undeclared-reference", "unknown-field", "not-available"):
        return ""
    for name, step in language_version.NAME_STEPS.items():
        if int(step) > language_version.STEP and f"`{name.rpartition('.')[2]}`" in problem.message:
            return f"`{name}` is part of the language but not alive in this version (step {step})"
    return ""


def _to_expression(program: Program | LazyProgram) -> Expression:
    if isinstance(program, Program):
        return program.function

    function: Expression

    def first(view: Activation) -> Any:
        nonlocal function
        function = program.program.function
        return function(view)

    function = first
    return lambda view: function(view)
