"""Whether a condition selects anything: `1 = 1` and `id = id` do not."""

from __future__ import annotations

from policyguard.sql.parser import Expr

_OPPOSITE = {"eq": "neq", "gt": "lte", "gte": "lt", "neq": "eq", "lte": "gt", "lt": "gte"}
_REFLEXIVE = frozenset(("eq", "gte", "lte", "nullsafeeq", "like", "ilike"))
_WILDCARDS = frozenset("%*.")


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
        if left == right or _text(left) == _text(right):
            return False
        if condition.key in ("like", "ilike") and right.key == "literal":
            return bool(set(right.name) - _WILDCARDS) or not right.name
    if condition.key == "not":
        return _selects_negated(condition.this)
    return True


def _selects_negated(condition: Expr) -> bool:
    """Whether NOT `condition` selects anything: `NOT id <> id` does not."""
    while condition.key == "paren":
        condition = condition.this
    if condition.key == "not":
        return selects(condition.this)
    left, right = condition.args.get("this"), condition.args.get("expression")
    if condition.key in ("neq", "lt", "gt") and left is not None and right is not None:
        return not (left == right or _text(left) == _text(right))
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
    if key == "not":
        return _form(condition.this, opposite=not opposite)
    if opposite:
        key = _OPPOSITE.get(key, f"not {key}")
    left, right = condition.args.get("this"), condition.args.get("expression")
    return key, _text(left), _text(right)


def _text(node: object) -> str:
    """Return a leaf as text; of anything else, what no other node has."""
    if not isinstance(node, Expr):
        return str(node)
    if node.key == "paren":
        return _text(node.this)
    if node.key in ("column", "literal"):
        return f"{node.key} {node.name.lower() if node.key == 'column' else node.name}"
    return node.key if node.key == "null" else str(id(node))
