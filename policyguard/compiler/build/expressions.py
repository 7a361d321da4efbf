"""Check and compile all CEL expressions of a policy.

Each expression has its path in the merged policy, such as `("rules", "no-push", "when")`. An error
in one does not hide errors in others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from policyguard.cel.errors import CelError, Problem
from policyguard.cel.types.types import BOOL, DYN, NUMBER, STRING
from policyguard.compiler.build.cel_env import CelEnvironment, Scope
from policyguard.compiler.build.entry_paths import (
    Path,
    learn_sections,
    limit_path,
    mark_events,
    rule_parts,
)
from policyguard.compiler.build.lazy_program import (
    ExpressionSpec,
    LazyProgram,
    ParsedExpression,
    to_expression,
)
from policyguard.compiler.load import language_version
from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.evaluator.activation import Expression, Prefilter
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.limits import limits_of
from policyguard.model.policy import Policy, Rule

if TYPE_CHECKING:
    from policyguard.cel.declarations import Declarations
    from policyguard.cel.program import Program
    from policyguard.cel.syntax.ast import Expr
    from policyguard.compiler.merge.layers import MergedPolicy

Refine: TypeAlias = "Callable[[Path, Declarations], Declarations]"


class Expressions:
    """The compiled programs of a policy, by path.

    `shell` and `patterns` are what their functions read commands and texts with.
    """

    def __init__(
        self, programs: Mapping[Path, Program | LazyProgram], environment: CelEnvironment
    ) -> None:
        self._programs = programs
        self._environment = environment
        self.shell = environment.shell
        self.patterns = environment.patterns

    def program(self, *path: str | int) -> Program | None:
        """Return the program at a path, or None."""
        program = self._programs.get(path)
        return program.program if isinstance(program, LazyProgram) else program

    def get(self, *path: str | int) -> Expression | None:
        """Return the program at a path as a function of the activation, or None."""
        program = self._programs.get(path)
        return to_expression(program) if program is not None else None

    def prefilter(self, paths: Iterable[Path]) -> Prefilter:
        """Combine conditions evaluated before the call; a path without one is true."""
        from policyguard.cel.program import compile_prefilter  # slow import
        from policyguard.cel.syntax.ast import Constant, TextSpan

        always_true = ("true", Constant(TextSpan(0, 4), True))
        conditions = []
        for path in paths:
            program = self._programs.get(path)
            conditions.append(always_true if program is None else (program.source, program.tree))
        return compile_prefilter(conditions, self._environment.declarations("before_call"))

    def reads(self, *path: str | int) -> frozenset[str]:
        """Return the dotted fields that the expression at a path reads."""
        program = self._programs.get(path)
        return program.reads if program is not None else frozenset()

    def __iter__(self) -> Iterator[tuple[Path, Program]]:
        """Yield all programs with their paths."""
        for path, program in self._programs.items():
            yield path, program.program if isinstance(program, LazyProgram) else program

    def sources(self) -> Iterator[str]:
        """Return the texts of all expressions."""
        return (program.source for program in self._programs.values())

    def trees_naming(self, name: str) -> Iterator[Expr]:
        """Return the syntax trees of the expressions whose text contains a name."""
        return (program.tree for program in self._programs.values() if name in program.source)

    def all_reads(self, but: Callable[[Path], bool] = lambda _: False) -> frozenset[str]:
        """Return the dotted fields that any expression reads, but those at some paths."""
        return frozenset(
            field
            for path, program in self._programs.items()
            if not but(path)
            for field in program.reads
        )

    def parsed_by_source(self) -> dict[str, ParsedExpression]:
        """Return the parsed expressions to cache, by text."""
        return {program.source: ParsedExpression.from_program(program) for _, program in self}


def compile_expressions(
    policy: Policy, merged: MergedPolicy, refine: Refine | None = None
) -> tuple[Expressions, list[Diagnostic]]:
    """Compile every expression of a policy, and collect all errors and warnings.

    `refine` narrows the declarations at a path to reveal more errors. The programs do not rely on
    it: at run time the arguments are whatever the model wrote.
    """
    programs: dict[Path, Program] = {}
    found: list[Diagnostic] = []
    environment = CelEnvironment(policy, merged)
    for spec in _list_specs(policy):
        declarations = environment.declarations(spec.scope)
        program, problems = _compile(spec, declarations)
        if program is not None:
            programs[spec.path] = program
        if refine is not None:
            _, more = _compile(spec, refine(spec.path, declarations))
            problems = _join(problems, more)
        found += [_to_diagnostic(problem, spec, merged) for problem in problems]
    return Expressions(programs, environment), found


def restore_expressions(policy: Policy, outlines: Mapping[str, ParsedExpression]) -> Expressions:
    """Restore the expressions of a cached policy.

    Raises `KeyError` for an expression that is not cached.
    """
    environment = CelEnvironment(policy, None)
    programs = {
        spec.path: LazyProgram(spec, outlines[spec.source], environment)
        for spec in _list_specs(policy)
    }
    return Expressions(programs, environment)


def rule_reads(expressions: Expressions, rule: Rule) -> frozenset[str]:
    """Return the dotted fields that the conditions of a rule and its cases read."""
    own: Path = ("rules", rule.id)
    paths = [own, *((*own, "cases", index) for index in range(len(rule.cases)))]
    return frozenset[str]().union(
        *(expressions.reads(*path, key) for path in paths for key in ("when", "unless"))
    )


def reads_field(reads: frozenset[str], field: str) -> bool:
    """Return whether one of the dotted fields is `field`, or lies inside or around it."""
    return any(
        read == field or read.startswith(f"{field}.") or field.startswith(f"{read}.")
        for read in reads
    )


def _join(problems: tuple[Problem, ...], more: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return all problems once, without warnings of places where `more` has an error."""
    wrong = {_place(problem) for problem in more if problem.severity == "error"}
    kept = (one for one in problems if one.severity == "error" or _place(one) not in wrong)
    return tuple(dict.fromkeys((*kept, *more)))


def _place(problem: Problem) -> tuple[int, int, int, int]:
    return problem.line, problem.column, problem.end_line, problem.end_column


def _compile(
    spec: ExpressionSpec, declarations: Declarations
) -> tuple[Program | None, tuple[Problem, ...]]:
    from policyguard.cel.program import compile as compile_cel  # slow import

    try:
        program = compile_cel(spec.source, declarations, expect=spec.expected_type)
    except CelError as error:
        return None, error.problems
    return program, program.warnings


_DECLARED = {"params": "…", "lists": "[…]", "tags": "string", "mark": "{set: {…}}"}
_UNDECLARED = lazy_pattern(r"`(params|lists|tags|mark)` has no field `(\w+)`")


def _list_specs(policy: Policy) -> Iterator[ExpressionSpec]:
    before: Scope = "before_call"
    after: Scope = "after_call"
    for index, entry in enumerate(policy.classify.classes):
        if entry.when is not None:
            yield ExpressionSpec(("classify", "classes", index, "when"), entry.when, before, BOOL)
    changing = policy.classify.state_changing
    if isinstance(changing, str):
        yield ExpressionSpec(("classify", "state_changing"), changing, before, BOOL)
    if policy.outcomes.failed_when is not None:
        yield ExpressionSpec(
            ("outcomes", "failed_when"), policy.outcomes.failed_when, "raw_outcome", BOOL
        )
    for index, blame_rule in enumerate(policy.blame):
        yield ExpressionSpec(("blame", index, "when"), blame_rule.when, after, BOOL)
    for level, limits in policy.limits.items():
        for index, repeat in enumerate(limits_of(limits, "repeat")):
            if repeat.key is not None:
                path = limit_path(limits, level, "repeat", index)
                yield ExpressionSpec((*path, "key"), repeat.key, before, DYN)
    for budget in policy.budgets:
        if budget.when is not None:
            # These count from the start of the call.
            kinds = (budget.concurrent, budget.time, budget.distinct)
            begins = any(kind is not None for kind in kinds)
            scope = before if begins else after
            yield ExpressionSpec(("budgets", budget.id, "when"), budget.when, scope, BOOL)
        if budget.sum is not None:
            yield ExpressionSpec(("budgets", budget.id, "sum"), budget.sum, after, NUMBER)
        if budget.distinct is not None:
            path = ("budgets", budget.id, "distinct")
            yield ExpressionSpec(path, budget.distinct, before, DYN)
        for index, key in enumerate(budget.per.keys):
            yield ExpressionSpec(("budgets", budget.id, "per", index + 1), key, before, STRING)
    for learn, path in learn_sections(policy):
        for field, scope in (("key", before), ("scope_key", before), ("count_by", after)):
            source = getattr(learn, field)
            if source is not None:
                yield ExpressionSpec((*path, field), source, scope, STRING)
    for index, radius in enumerate(policy.radius):
        if radius.when is not None:
            yield ExpressionSpec(("radius", index, "when"), radius.when, before, BOOL)
    for _, kind, event, path in mark_events(policy):
        scope = after if kind == "set" else before
        for field in ("when", "unless"):
            source = getattr(event, field)
            if source is not None:
                yield ExpressionSpec((*path, field), source, scope, BOOL)
        if event.key is not None:
            yield ExpressionSpec((*path, "key"), event.key, before, DYN)
    for mark in policy.marks:
        if mark.key is not None:
            yield ExpressionSpec(("marks", mark.id, "key"), mark.key, after, DYN)
    for path, part in rule_parts(policy):
        if part.when is not None:
            yield ExpressionSpec((*path, "when"), part.when, before, BOOL)
        if part.unless is not None:
            yield ExpressionSpec((*path, "unless"), part.unless, before, BOOL)
    for exception in policy.exceptions:
        if exception.when is not None:
            yield ExpressionSpec(("exceptions", exception.id, "when"), exception.when, before, BOOL)
    for result_rule in policy.result_rules:
        for field in ("when", "unless"):
            source = getattr(result_rule, field)
            if source is not None:
                path = ("result_rules", result_rule.id, field)
                yield ExpressionSpec(path, source, after, BOOL)


def _to_diagnostic(problem: Problem, spec: ExpressionSpec, merged: MergedPolicy) -> Diagnostic:
    span = merged.span_within(
        spec.path, problem.line, problem.column, problem.end_line, problem.end_column
    )
    unsupported = _unsupported_message(problem)
    return Diagnostic(
        code="cel/unsupported" if unsupported else f"cel/{problem.code}",
        severity=problem.severity,
        message=unsupported or problem.message,
        span=span,
        help=None if unsupported else _hint(problem, spec) or problem.help,
        lines=merged.lines(span),
    )


def _hint(problem: Problem, spec: ExpressionSpec) -> str | None:
    undeclared = _UNDECLARED.fullmatch(problem.message)
    if undeclared is not None and (problem.help is None or "." in problem.help):
        section, name = undeclared.groups()
        shown = "marks" if section == "mark" else section
        return f"declare it: `{shown}: {{{name}: {_DECLARED[section]}}}`"
    if problem.code == "undeclared-reference" and "`outcome`" in problem.message:
        early = f"`{spec.path[0]}` is"
        if spec.path[0] == "marks":
            early = "`clear` is"
        if spec.path[0] == "budgets":
            early = "`per` and `distinct`, and `when` beside `concurrent` or `time`, are"
        return f"{early} evaluated before the call, which has no outcome yet"
    return None


def _unsupported_message(problem: Problem) -> str:
    """Return a message if the problem is a name that is not implemented yet, else empty."""
    if problem.code not in ("undeclared-reference", "unknown-field"):
        return ""
    for name, step in language_version.NAME_STEPS.items():
        is_ahead = int(step) > language_version.SUPPORTED_STEP
        if is_ahead and f"`{name.rpartition('.')[2]}`" in problem.message:
            return f"`{name}` is not implemented yet"
    return ""
