"""From the text of an expression to something that can be called."""

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
from policyguard.cel.syntax.tree import Expr, Logic, TextSpan
from policyguard.cel.types.types import DYN, Type, is_assignable

__all__ = ["Program", "compile", "compile_prefilter"]


class Program(msgspec.Struct, frozen=True):
    """A compiled expression. Immutable, keeps no state, and is safe to share between threads."""

    source: str
    tree: Expr
    """The syntax tree of the source."""
    function: Callable[..., Any]
    """The generated function. It takes the `parameters` by position."""
    parameters: tuple[str, ...]
    """The variables that the expression reads, in the order of their declaration; or `view` alone,
    where that holds them (`Declarations.attributes`)."""
    reads: frozenset[str]
    """The fields that it reads, as dotted paths; a variable used as a whole stands as its name."""
    parameter_types: tuple[Type, ...]
    """The declared types of the parameters."""
    type: Type
    warnings: tuple[Problem, ...]
    code: str
    """The generated Python."""

    def __call__(self, **values: Any) -> Any:
        """The value of the expression for these variables; those it does not read may be left out.

        Values and result are plain Python: datetimes stand for timestamps and timedeltas for
        durations (to the microsecond), an int for an unsigned one where that is declared.
        `CelEvaluationError` where the expression has no value, `TypeError` where a variable that
        it reads is not given.
        """
        given = {
            name: to_cel(values[name], type_)
            for name, type_ in zip(self.parameters, self.parameter_types, strict=True)
            if name in values
        }
        return from_cel(self.raw(**given))

    def raw(self, **values: Any) -> Any:
        """The same with the engine's own values: `Uint`, `Timestamp`, `Duration`."""
        missing = [name for name in self.parameters if name not in values]
        if missing:
            raise TypeError(f"the expression reads `{missing[0]}`, which is not given")
        return self.function(*[values[name] for name in self.parameters])

    def __repr__(self) -> str:
        return f"Program({self.source!r})"


def compile(  # noqa: A001  # the public name is `policyguard.cel.compile`, as in `re.compile`
    source: str,
    declarations: Declarations | Mapping[str, TypeSpec],
    *,
    check: bool = True,
    expect: Type | None = None,
    tree: Expr | None = None,
) -> Program:
    """Compile `source`, or raise `CelError` with everything that is wrong with it.

    `declarations` name the variables and their types: `{"x": "int", "tags": "list(string)",
    "call": {"tool": "string", "args": "map(string, dyn)"}}`, or a `Declarations`.

    Without `check` types are left to run time, and so are names that are not declared. With
    `expect` the expression must be of that type, or `dyn`.

    `tree` is the source's syntax tree where it is known, as `Program.tree` of another compilation:
    then nothing is parsed.

    `TypeError` for a value of another type, `ValueError` for a name that is no type.
    """
    require_type("source", source, str, "a text")
    require_type("expect", expect, Type | None, "a `Type` such as `cel.BOOL`")
    return _compile(source, tree, to_declarations(declarations), check, expect)


def compile_prefilter(
    conditions: Sequence[tuple[str, Expr]], declarations: Declarations
) -> Callable[[Any], tuple[int, ...]]:
    """One function for many conditions, by source and tree: which of them are not false.

    Most rules have nothing against most calls, and calling a function costs more than all that a
    rule asks. The function takes the object that holds the variables (`Declarations.attributes`)
    and returns the places of the conditions that are true there, have no value, or are no bools.
    `CelError` where one does not compile.
    """
    problems = Problems("")
    trees = [tree for _, tree in conditions]
    checked = check_expression(
        Logic(TextSpan(0, 0), "||", trees), declarations, problems, strict=True
    )
    if problems.has_errors:
        raise CelError(problems.all)
    return generate_prefilter(conditions, checked, declarations).load()


_CONVERSION_HELP = {
    ("string", ""): "`string(…)` makes it one",
    ("number", "bool"): "`… ? 1 : 0` makes it one; which calls count stands in `when`",
    ("number", "string"): "`double(…)` makes it one",
}
"""How an expression of another type is made what is wanted, by both kinds, or for any."""


def _compile(
    source: str,
    known: Expr | None,
    declarations: Declarations,
    strict: bool,
    expect: Type | None,
) -> Program:
    problems = Problems(source)
    tree = known if known is not None else _parse_source(source, problems)
    checked = check_expression(tree, declarations, problems, strict=strict)
    if expect is not None and not is_assignable(expect, checked.type):
        code = "not-bool" if expect.kind == "bool" else "wrong-type"
        message = f"the expression must be {expect}, but is {checked.type}"
        help_ = _CONVERSION_HELP.get(
            (expect.kind, checked.type.kind), _CONVERSION_HELP.get((expect.kind, ""))
        )
        problems.error(code, message, tree.span, help_)
    if problems.has_errors:
        raise CelError(problems.all)
    try:
        generated = generate(tree, checked, declarations, source)
    except TooManyBlocksError:
        message = "too many operators inside each other"
        problems.error("too-deep", message, TextSpan(0, len(source)))
        raise CelError(problems.all) from None
    return Program(
        source=source,
        tree=tree,
        function=generated.load(),
        parameters=generated.parameters,
        parameter_types=tuple(
            declarations.variables.get(name, DYN) for name in generated.parameters
        ),
        reads=frozenset(checked.reads),
        type=checked.type if strict else DYN,
        warnings=problems.all,
        code=generated.code,
    )


def _parse_source(source: str, problems: Problems) -> Expr:
    from policyguard.cel.syntax.parse import (
        parse,  # where all trees are known, nobody needs a parser
    )

    tree = parse(source, problems.error)
    if tree is None:
        raise CelError(problems.all)
    return tree
