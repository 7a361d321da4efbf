"""Compilation of an expression to a callable program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from policyguard.cel.check.checker import check_expression
from policyguard.cel.check.problems import Problems
from policyguard.cel.codegen.generate import generate, generate_prefilter
from policyguard.cel.codegen.logic import TooManyBlocksError
from policyguard.cel.declarations import Declarations
from policyguard.cel.errors import CelError, Problem
from policyguard.cel.interop import TypeSpec, from_cel, require_type, to_cel, to_declarations
from policyguard.cel.syntax.ast import Expr, Logic, TextSpan
from policyguard.cel.types.types import DYN, Type, is_assignable

_CONVERSION_HELP = {
    ("string", ""): "convert it with `string(…)`",
    ("number", "bool"): "use `… ? 1 : 0`; to choose which calls count, use `when`",
    ("number", "string"): "convert it with `double(…)`",
}
"""Help on converting an expression, by expected and actual kind (empty: any)."""


class Program(msgspec.Struct, frozen=True):
    """A compiled expression. Immutable and stateless, so safe to share between threads."""

    source: str
    tree: Expr
    """The syntax tree of the source."""
    function: Callable[..., Any]
    """The generated function. It takes the `parameters` by position."""
    parameters: tuple[str, ...]
    """The variables that the expression reads, in declaration order; only `activation` where one
    object holds them all (`Declarations.attributes`)."""
    reads: frozenset[str]
    """The fields that the expression reads, as dotted paths; for a whole variable its name."""
    parameter_types: tuple[Type, ...]
    """The declared types of the parameters."""
    type: Type
    warnings: tuple[Problem, ...]
    code: str
    """The generated Python."""

    def __call__(self, **values: Any) -> Any:
        """Evaluate the expression for these variables; unread ones may be omitted.

        Arguments and the result are plain Python: a datetime is a timestamp and a timedelta a
        duration (to the microsecond), an int is a uint where one is declared. Raises
        `CelEvaluationError` if the expression has no value, and `TypeError` if a variable that it
        reads is missing.
        """
        converted = {
            name: to_cel(values[name], type_)
            for name, type_ in zip(self.parameters, self.parameter_types, strict=True)
            if name in values
        }
        return from_cel(self.raw(**converted))

    def raw(self, **values: Any) -> Any:
        """Evaluate with the engine's own values: `Uint`, `Timestamp`, `Duration`."""
        missing = [name for name in self.parameters if name not in values]
        if missing:
            raise TypeError(f"missing argument `{missing[0]}`: the expression reads it")
        return self.function(*[values[name] for name in self.parameters])

    def __repr__(self) -> str:
        return f"Program({self.source!r})"


def compile(  # noqa: A001  # used as `cel.compile`, like `re.compile`
    source: str,
    declarations: Declarations | Mapping[str, TypeSpec],
    *,
    check: bool = True,
    expect: Type | None = None,
    tree: Expr | None = None,
) -> Program:
    """Compile `source`; raise `CelError` with every problem found.

    `declarations` map variables to types, such as `{"x": "int", "tags": "list(string)"}` with
    nested mappings for records, or are a `Declarations`.

    Without `check`, types and undeclared names become errors at run time. With `expect`, the
    expression must be of that type, or `dyn`. `tree` skips parsing: pass `Program.tree` of an
    earlier compilation of the same source.

    Raises `TypeError` for an argument of the wrong Python type and `ValueError` for an unknown type
    name.
    """
    require_type("source", source, str, "a string")
    require_type("expect", expect, Type | None, "a `Type` such as `cel.BOOL`")
    declarations = to_declarations(declarations)
    problems = Problems(source)
    if tree is None:
        tree = _parse_source(source, problems)
    checked = check_expression(tree, declarations, problems, strict=check)
    if expect is not None and not is_assignable(expect, checked.type):
        code = "not-bool" if expect.kind == "bool" else "wrong-type"
        message = f"the expression must be {expect}, but is {checked.type}"
        any_help = _CONVERSION_HELP.get((expect.kind, ""))
        help_ = _CONVERSION_HELP.get((expect.kind, checked.type.kind), any_help)
        problems.report(code, message, tree.span, help_)
    if problems.has_errors:
        raise CelError(problems.all)
    try:
        generated = generate(tree, checked, declarations, source)
    except TooManyBlocksError:
        message = "operators are nested too deeply"
        problems.report("too-deep", message, TextSpan(0, len(source)))
        raise CelError(problems.all) from None
    parameters = generated.parameters
    return Program(
        source=source,
        tree=tree,
        function=generated.load(),
        parameters=parameters,
        parameter_types=tuple(declarations.variables.get(name, DYN) for name in parameters),
        reads=frozenset(checked.reads),
        type=checked.type if check else DYN,
        warnings=problems.all,
        code=generated.code,
    )


def compile_prefilter(
    conditions: Sequence[tuple[str, Expr]], declarations: Declarations
) -> Callable[[Any], tuple[int, ...]]:
    """Compile conditions, as source and tree, to one function that returns those not false.

    Most rules do not apply to most calls, and a function call costs more than a rule's whole
    condition. The function takes the activation (`Declarations.attributes`) and returns the indexes
    of the conditions that are true, fail, or are not bool. Raises `CelError` if one does not
    compile.
    """
    problems = Problems("")
    trees = [tree for _, tree in conditions]
    checked = check_expression(
        Logic(TextSpan(0, 0), "||", trees), declarations, problems, strict=True
    )
    if problems.has_errors:
        raise CelError(problems.all)
    return generate_prefilter(conditions, checked, declarations).load()


def _parse_source(source: str, problems: Problems) -> Expr:
    from policyguard.cel.syntax.parse import parse  # cached policies do without a parser

    tree = parse(source, problems.report)
    if tree is None:
        raise CelError(problems.all)
    return tree
