"""The type checker.

It follows cel-spec (langdef.md, "Gradual Type Checking"), with `dyn` for values known only at run
time. Beyond the specification it checks record fields, vocabularies, comparisons that can never
hold, and patterns, so that a policy cannot silently do nothing. After a problem the type becomes
`dyn`, and checking continues.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from policyguard.cel.check.operator_types import (
    find_quoted_number,
    infer_arithmetic_type,
    is_ordered,
    suggest_literal,
    suggest_membership,
    suggest_operands,
)
from policyguard.cel.check.overloads import ResolvedCall, find_accessor, resolve_call
from policyguard.cel.check.problems import Problems
from policyguard.cel.check.scope import FieldPath, Scope, field_name
from policyguard.cel.check.vocabularies import check_member
from policyguard.cel.declarations import Declarations
from policyguard.cel.syntax import ast
from policyguard.cel.syntax.ast import Expr, TextSpan, split_dotted_name
from policyguard.cel.types.types import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    LITERAL_TYPES,
    NUMERIC_TYPES,
    STRING,
    TYPE,
    ListType,
    MapType,
    RecordType,
    Type,
    is_comparable,
    join_all_types,
    join_types,
    list_of,
    map_of,
    with_article,
)
from policyguard.cel.types.values import TypeValue

_KEY_KINDS: Final = frozenset({"bool", "int", "uint", "string", "dyn"})


class CheckedExpression(msgspec.Struct):
    """The results of checking a tree."""

    type: Type = DYN
    reads: set[str] = msgspec.field(default_factory=set)
    references: dict[Expr, str | TypeValue] = msgspec.field(default_factory=dict)
    """Identifiers and selections that name a declared variable or a type."""
    calls: dict[ast.Call, ResolvedCall] = msgspec.field(default_factory=dict)
    expected_types: dict[Expr, Type] = msgspec.field(default_factory=dict)
    """The expected type of each node. At run time only operators guarantee the type of a result."""


def check_expression(
    tree: Expr, declarations: Declarations, problems: Problems, *, strict: bool
) -> CheckedExpression:
    """Check `tree` and report what is wrong with it to `problems`.

    Without `strict` every type is `dyn`, and an undeclared name becomes an error at run time.
    """
    checker = _Checker(declarations, problems, strict)
    checker.result.type = checker.check(tree)
    return checker.result


class _Checker:
    def __init__(self, declarations: Declarations, problems: Problems, strict: bool) -> None:
        self.declarations = declarations
        self.problems = problems
        self.strict = strict
        self.scope = Scope(declarations)
        self.result = CheckedExpression(references=self.scope.references)
        self.present_fields: frozenset[FieldPath] = frozenset()

    def check(self, node: Expr, *, prefix: bool = False) -> Type:
        """Return the type of `node`. `prefix` means that it is part of a longer path."""
        if isinstance(node, ast.Identifier):
            checked = self.check_identifier(node, is_path=prefix)
        else:
            checked = getattr(self, f"check_{type(node).__name__.lower()}")(node)
        result = checked if self.strict else DYN
        self.result.expected_types[node] = result
        if not prefix and (path := self.scope.dotted_path(node)) is not None:
            self.result.reads.add(path)
        return result

    def check_assuming(self, node: Expr, present: Iterable[FieldPath]) -> Type:
        """Return the type of `node` if the fields in `present` are known to be present."""
        previous = self.present_fields
        self.present_fields = previous.union(present)
        result = self.check(node)
        self.present_fields = previous
        return result

    def expect_bool(self, actual: Type, node: Expr, role: str, help_: str | None = None) -> None:
        if actual not in (BOOL, DYN):
            self.problems.report("not-bool", f"{role} must be bool, not {actual}", node.span, help_)

    # Names and fields

    def record_reference(self, node: Expr, referent: str | TypeValue) -> Type:
        self.scope.references[node] = referent
        return self.declarations.variables[referent] if isinstance(referent, str) else TYPE

    def check_identifier(self, node: ast.Identifier, *, is_path: bool) -> Type:
        referent = self.scope.resolve(node, [])
        if referent is not None:
            return self.record_reference(node, referent)
        if not node.absolute and (entry := self.scope.find_macro_variable(node.name)) is not None:
            return entry[1]
        if self.strict:
            help_ = self.scope.suggest(node.name, is_path=is_path)
            message = f"unknown variable `{node.name}`"
            self.problems.report("undeclared-reference", message, node.span, help_)
        return DYN

    def check_select(self, node: ast.Select) -> Type:
        name = split_dotted_name(node)
        if name is not None and (referent := self.scope.resolve(*name)) is not None:
            return self.record_reference(node, referent)
        return self.field_type(node, self.check(node.operand, prefix=True))

    def field_type(self, node: ast.Select | ast.Index, operand: Type) -> Type:
        """Return the type of a field; report it if it does not exist or may be absent."""
        if isinstance(node, ast.Select):
            name, span = node.field, node.field_span
        else:
            name, span = str(_constant_value(node.key)), node.key.span
        if isinstance(operand, RecordType):
            field = self.find_field(operand, name, span)
            if field is not None and name in operand.optional:
                self.warn_if_absent(node)
            return field or DYN
        if isinstance(operand, MapType):
            if is_comparable(operand.key, STRING):
                return operand.value
        elif operand == DYN:
            return DYN
        help_ = "use `.exists(x, …)` on a list" if isinstance(operand, ListType) else None
        if (function := find_accessor(name, self.declarations)) is not None:
            help_ = f"did you mean `{function}()`?"
        message = f"{with_article(operand)} has no field `{name}`"
        self.problems.report("unknown-field", message, span, help_)
        return DYN

    def find_field(self, record: RecordType, name: str, span: TextSpan) -> Type | None:
        field = record.fields.get(name)
        if field is None:
            message = f"`{record}` has no field `{name}`"
            help_ = self.scope.suggest_field(record, name)
            self.problems.report("unknown-field", message, span, help_)
        return field

    def warn_if_absent(self, node: Expr) -> None:
        path = self.scope.field_path(node)
        if path is None or path in self.present_fields:
            return
        root = path[0] if isinstance(path[0], str) else path[0].name
        dotted = ".".join((root, *path[1:]))
        message = f"`{dotted}` may be absent, which is an error at run time"
        help_ = f"check `has({dotted})` first"
        self.problems.report("maybe-absent", message, node.span, help_, "warning")

    def check_has(self, node: ast.Has) -> Type:
        selection = node.selection
        operand = self.check(selection.operand, prefix=True)
        span = selection.field_span
        if isinstance(operand, RecordType):
            self.check_presence(operand, selection.field, span, node, "`has`")
        elif operand != DYN and not isinstance(operand, MapType):
            self.problems.report("no-such-overload", f"{with_article(operand)} has no fields", span)
        return BOOL

    def check_presence(
        self, record: RecordType, name: str, span: TextSpan, node: Expr, test: str
    ) -> None:
        """Report a test for a field that does not exist, or is always present."""
        field = self.find_field(record, name, span)
        if field is not None and name not in record.optional | record.unverified:
            message = f"`{name}` is always present, so {test} is always true"
            help_ = f"read it instead: `{record}.{name}`" if field == BOOL else None
            self.problems.report("always-present", message, node.span, help_)

    def check_index(self, node: ast.Index) -> Type:
        constant = _constant_value(node.key)
        is_path = field_name(node.key) is not None
        operand = self.check(node.operand, prefix=is_path)
        key = self.check(node.key)
        if isinstance(operand, RecordType) and isinstance(constant, str):
            return self.field_type(node, operand)
        if isinstance(constant, int) and constant < 0 and not isinstance(operand, MapType):
            help_ = "the last item is `list[size(list) - 1]`"
            message = "no index is negative, so this is always an error"
            self.problems.report("bad-argument", message, node.key.span, help_, "warning")
        if isinstance(operand, ListType):
            if key != DYN and key not in NUMERIC_TYPES:
                message = f"a list index must be int, not {key}"
                self.problems.report("no-such-overload", message, node.key.span)
            return operand.element
        if isinstance(operand, RecordType):
            return DYN
        if isinstance(operand, MapType):
            if not is_comparable(operand.key, key):
                message = f"this map has {operand.key} keys, not {key}"
                self.problems.report("no-such-overload", message, node.key.span)
            check_member(self.problems, operand.key, node.key)
            return operand.value
        if operand != DYN:
            message = f"{with_article(operand)} cannot be indexed"
            self.problems.report("no-such-overload", message, node.span)
        return DYN

    # Literals

    def check_constant(self, node: ast.Constant) -> Type:
        return LITERAL_TYPES[node.value.__class__]

    def check_badexpr(self, node: ast.BadExpr) -> Type:
        return DYN

    def check_listliteral(self, node: ast.ListLiteral) -> Type:
        return list_of(join_all_types([self.check(item) for item in node.items]))

    def check_mapliteral(self, node: ast.MapLiteral) -> Type:
        for key, _ in node.entries:
            key_type = self.check(key)
            if key_type.kind not in _KEY_KINDS:
                message = f"{with_article(key_type)} cannot be a map key"
                self.problems.report("no-such-overload", message, key.span)
        keys = [self.result.expected_types[key] for key, _ in node.entries]
        values = [self.check(value) for _, value in node.entries]
        return map_of(join_all_types(keys), join_all_types(values))

    # Operators

    def check_unary(self, node: ast.Unary) -> Type:
        operand = self.check(node.operand)
        if node.operator == "!":
            help_ = "negate a comparison as a whole: `!(… in …)`"
            self.expect_bool(operand, node.operand, "the operand of `!`", help_)
            return BOOL
        if operand not in (INT, DOUBLE, DYN):
            self.problems.report("no-such-overload", f"`-` is not defined for {operand}", node.span)
            return DYN
        return operand

    def check_logic(self, node: ast.Logic) -> Type:
        # Both operators absorb errors from either side, so a `has()` guards every operand.
        holds = node.operator == "&&"
        guaranteed = self.scope.guaranteed_fields
        guarded = [path for operand in node.operands for path in guaranteed(operand, holds)]
        for operand in node.operands:
            actual = self.check_assuming(operand, guarded)
            self.expect_bool(actual, operand, f"an operand of `{node.operator}`")
        return BOOL

    def check_conditional(self, node: ast.Conditional) -> Type:
        condition = self.check(node.condition)
        self.expect_bool(condition, node.condition, "the condition of `?:`")
        guaranteed = self.scope.guaranteed_fields
        then = self.check_assuming(node.then, guaranteed(node.condition, True))
        otherwise = self.check_assuming(node.otherwise, guaranteed(node.condition, False))
        return join_types(then, otherwise)

    def check_binary(self, node: ast.Binary) -> Type:
        left = self.check(node.left)
        right = self.check(node.right)
        match node.operator:
            case "==" | "!=":
                self.check_equality(node, left, right)
                return BOOL
            case "in":
                self.check_membership(node, left, right)
                return BOOL
            case "<" | "<=" | ">" | ">=":
                if not is_ordered(left, right):
                    self.report_no_operator(node, left, right)
                elif (number := find_quoted_number(node, left, right)) is not None:
                    message = f"`'{number}'` is text, and comparing it with a number is an error"
                    help_ = f"write the number without quotes: `{number}`, and `int(…)` around text"
                    self.problems.report("bad-argument", message, node.span, help_, "warning")
                return BOOL
        result = infer_arithmetic_type(node.operator, left, right)
        if result is None:
            self.report_no_operator(node, left, right)
        return result or DYN

    def check_equality(self, node: ast.Binary, left: Type, right: Type) -> None:
        if not is_comparable(left, right):
            message = f"{with_article(left)} is never equal to {with_article(right)}"
            help_ = suggest_literal(node, left, right) or suggest_membership(left, right)
            self.problems.report("never-equal", message, node.span, help_)
        check_member(self.problems, left, node.right)
        check_member(self.problems, right, node.left)

    def check_membership(self, node: ast.Binary, left: Type, right: Type) -> None:
        if isinstance(node.right, ast.ListLiteral):
            for item in node.right.items:
                check_member(self.problems, left, item)
        if isinstance(right, RecordType):
            member: Type = STRING
            if isinstance(name := _constant_value(node.left), str):
                self.check_presence(right, name, node.left.span, node, "this")
        elif isinstance(right, ListType):
            member = right.element
        elif isinstance(right, MapType):
            member = right.key
        elif right == DYN:
            return
        else:
            help_ = "use `.contains(…)` on a string" if right.kind == "string" else None
            message = f"`in` needs a list or a map, not {with_article(right)}"
            self.problems.report("no-such-overload", message, node.span, help_)
            return
        check_member(self.problems, member, node.left)
        if not is_comparable(left, member):
            message = f"{with_article(left)} is never in {with_article(right)}"
            self.problems.report("never-equal", message, node.span)

    def report_no_operator(self, node: ast.Binary, left: Type, right: Type) -> None:
        message = f"`{node.operator}` is not defined for {left} and {right}"
        help_ = suggest_operands(node, left, right)
        self.problems.report("no-such-overload", message, node.span, help_)

    # Calls and macros

    def check_call(self, node: ast.Call) -> Type:
        receiver = self.check(node.receiver) if node.receiver is not None else None
        arguments = [self.check(argument) for argument in node.arguments]
        resolved = resolve_call(
            node, receiver, arguments, self.declarations, self.problems, strict=self.strict
        )
        if resolved is None:
            return DYN
        self.result.calls[node] = resolved
        for overload in resolved.overloads:
            for parameter, argument in zip(overload.parameters, node.arguments, strict=True):
                check_member(self.problems, parameter, argument)
        return resolved.result_type

    def check_comprehension(self, node: ast.Comprehension) -> Type:
        source = self.check(node.source)
        first, second = self.iteration_types(node, source)
        if len(node.variables) == 2:
            variables = list(zip(node.variables, (first, second), strict=True))
        else:
            element = second if isinstance(source, ListType) else first
            variables = [(node.variables[0], element)]
        self.scope.macro_variables += variables
        present: list[FieldPath] = []
        if node.condition is not None:
            actual = self.check(node.condition)
            self.expect_bool(actual, node.condition, f"the condition of `{node.macro}`")
            present = self.scope.guaranteed_fields(node.condition, True)
        result = self.check_assuming(node.result, present) if node.result is not None else DYN
        del self.scope.macro_variables[-len(variables) :]
        match node.macro:
            case "map" | "transformList":
                return list_of(result)
            case "transformMap":
                return map_of(first, result)
            case "filter":
                return list_of(variables[0][1])
        return BOOL

    def iteration_types(self, node: ast.Comprehension, source: Type) -> tuple[Type, Type]:
        """Return the types of index and element, or of key and value."""
        if isinstance(source, ListType):
            return INT, source.element
        if isinstance(source, RecordType):
            return STRING, DYN
        if isinstance(source, MapType):
            return source.key, source.value
        if source != DYN:
            message = f"`{node.macro}` needs a list or a map, not {with_article(source)}"
            self.problems.report("no-such-overload", message, node.source.span)
        return DYN, DYN


def _constant_value(node: Expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None
