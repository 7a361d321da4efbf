"""Whether a condition selects anything: `1 = 1` and `id = id` do not."""

from __future__ import annotations

from policyguard.sql.parser import Column, Expr, Table

_OPPOSITE = {"eq": "neq", "gt": "lte", "gte": "lt", "neq": "eq", "lte": "gt", "lt": "gte"}
_REFLEXIVE = frozenset(("eq", "gte", "lte", "nullsafeeq", "like", "ilike"))
_WILDCARDS = frozenset("%*.")
_REGEXES = frozenset(("regexplike", "regexpilike", "similarto"))
_ANYTHING = frozenset("^$.*+?()|%")
"""Characters of which patterns consist that match any text."""


def selects(condition: Expr) -> bool:
    """Whether `condition` depends on the rows, and does not obviously hold for all of them."""
    pending = [condition]
    while pending:  # of a chain of AND, one condition is enough
        item = pending.pop()
        if item.key == "paren":
            pending.append(item.this)
        elif item.key == "and":
            pending += [item.this, item.expression]
        elif _selects_alone(item):
            return True
    return False


def _selects_alone(condition: Expr) -> bool:
    if not any(node.key == "column" for node in condition.walk()):
        return False
    if condition.key == "or":
        parts = _flatten_or(condition)
        forms = {_form(part) for part in parts}
        if any(_form(part, opposite=True) in forms for part in parts):
            return False
        return all(selects(part) for part in parts)
    left, right = condition.args.get("this"), condition.args.get("expression")
    if condition.key in _REFLEXIVE and left is not None and right is not None:
        if _is_same(left, right):
            return False
        if condition.key in ("like", "ilike") and right.key == "literal":
            return bool(set(right.name) - _WILDCARDS) or not right.name
    if condition.key in _REGEXES and right is not None and right.key == "literal":
        return bool(set(right.name) - _ANYTHING)
    if condition.key == "in":
        return not any(_is_same(left, item) for item in condition.expressions)
    if condition.key == "between":
        return not all(_is_same(left, condition.args.get(end)) for end in ("low", "high"))
    if condition.key == "case":
        return _selects_by_case(condition)
    if condition.key == "not":
        return _selects_negated(condition.this)
    return True


def _selects_by_case(condition: Expr) -> bool:
    """Whether no branch of a CASE is certainly taken, or the rest, and true."""
    rest = condition.args.get("default")
    if rest is not None and rest.key == "boolean" and rest.this:
        return False
    return all(
        selects(branch.this) or selects(branch.args["true"]) for branch in condition.args["ifs"]
    )


def _selects_negated(condition: Expr) -> bool:
    """Whether NOT `condition` selects anything: `NOT id <> id` does not."""
    while condition.key == "paren":
        condition = condition.this
    if condition.key == "not":
        return selects(condition.this)
    left, right = condition.args.get("this"), condition.args.get("expression")
    if condition.key in ("neq", "lt", "gt") and left is not None and right is not None:
        return not _is_same(left, right)
    return True


def _flatten_or(condition: Expr) -> list[Expr]:
    parts: list[Expr] = []
    pending = [condition]
    while pending:
        item = pending.pop()
        if item.key == "or":
            pending += [item.this, item.expression]
        elif item.key == "paren":
            pending.append(item.this)
        else:
            parts.append(item)
    return parts


def _form(condition: Expr, *, opposite: bool = False) -> tuple[str, str, str]:
    """Return a comparison as operator and operands; of `opposite`, what holds where it does not."""
    key = condition.key
    if key == "paren":
        return _form(condition.this, opposite=opposite)
    if key == "not":
        return _form(condition.this, opposite=not opposite)
    if key in ("nullsafeeq", "nullsafeneq"):
        opposite = opposite != (key == "nullsafeneq")
        key = "is"
    if condition.args.get("negate"):  # IS NOT
        opposite = not opposite
    if opposite:
        key = _OPPOSITE.get(key, f"not {key}")
    left, right = condition.args.get("this"), condition.args.get("expression")
    return key, _text(left), _text(right)


def _is_same(left: object, right: object) -> bool:
    """Whether two operands are the same value; not `t.id` and `u.id`, which join two tables."""
    if left == right:
        return True
    return _text(left) == _text(right) and not _are_of_two_tables(left, right)


def _are_of_two_tables(left: object, right: object) -> bool:
    """Whether two columns are those of two different tables that the statement names."""
    if not (isinstance(left, Expr) and isinstance(right, Expr)):
        return False
    left, right = left.unnest(), right.unnest()
    if not (isinstance(left, Column) and isinstance(right, Column)):
        return False
    nodes = list(left.root().walk())
    defined = {node.alias.lower() for node in nodes if node.key == "cte"}
    tables: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, Table):
            tables.setdefault(node.alias_or_name.lower(), set()).add(node.name.lower())
    first, second = (tables.get(column.table.lower(), set()) for column in (left, right))
    return (
        bool(first and second) and first.isdisjoint(second) and defined.isdisjoint(first | second)
    )


def _text(node: object) -> str:
    """Return a leaf as text; of anything else, what no other node has."""
    if not isinstance(node, Expr):
        return str(node)
    if node.key == "paren":
        return _text(node.this)
    if node.key in ("column", "literal"):
        return f"{node.key} {node.name.lower() if node.key == 'column' else node.name}"
    return node.key if node.key == "null" else str(id(node))
