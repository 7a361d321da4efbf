"""Render a merged policy as YAML or JSON, each value with its source file and line.

In the YAML, the sources are comments after the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from policyguard.report.escape import for_terminal, json_document

Scalar = str | int | float | bool | None

_PLAIN = re.compile(
    r"[0-9]+(?:ms|[smhdkM])|[A-Za-z_./][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./(-][A-Za-z0-9_./()-]*)*"
)
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", ".inf", ".nan"})
"""Scalars that are not strings in YAML 1.2 or 1.1."""
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_BLOCK = re.compile(r"\S(?:[^\n]*\n)+ *\S[^\n]*\n?")
"""Multi-line text that a YAML block can hold unchanged."""
_NEWLINE = "\n"
_COLUMN = 60
"""The column of the comments, unless the value is longer."""


@dataclass(frozen=True)
class AnnotatedValue:
    """A scalar, list or map with its source.

    `note` names another influence on the value. `overridden` are the values it replaced, latest
    first.
    """

    value: Scalar | list[AnnotatedValue] | dict[str, AnnotatedValue]
    file: str
    line: int
    note: str = ""
    overridden: tuple[AnnotatedValue, ...] = ()

    @property
    def location(self) -> str:
        """The file and line, as displayed."""
        return f"{for_terminal(self.file)}:{self.line}"

    @property
    def plain(self) -> Any:
        """The value without sources."""
        if isinstance(self.value, dict):
            return {key: child.plain for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain for child in self.value]
        return self.value


@dataclass(frozen=True)
class AnnotatedPolicy:
    """A policy, and the ids of disabled entries with the reasons."""

    sections: AnnotatedValue
    disabled: tuple[tuple[str, AnnotatedValue], ...]


def render_text(policy: AnnotatedPolicy, *, overridden: bool) -> str:
    """Render the policy as YAML, optionally with overridden and disabled values."""
    sections = policy.sections.value if isinstance(policy.sections.value, dict) else {}
    lines = [
        f"{line:<{_COLUMN}}  # {at}" if at else line
        for key, node in sections.items()
        for line, at in _section(key, node, overridden=overridden)
    ]
    if overridden:
        lines += [
            f"# {node.location} disables {for_terminal(id_)}: {for_terminal(str(node.value))}"
            for id_, node in policy.disabled
        ]
    return "\n".join(lines)


def render_json(policy: AnnotatedPolicy, *, overridden: bool) -> str:
    """Render every scalar with its path, file and line."""
    document: dict[str, Any] = {
        "settings": [_setting(path, node) for path, node in _iter_leaves(policy.sections, ())]
    }
    if overridden:
        document["overridden"] = [
            {"path": list(path), **_located(replaced)}
            for path, node in _iter_values(policy.sections, ())
            for replaced in node.overridden
        ]
        document["disabled"] = [
            {"id": id_, "reason": node.value, "file": node.file, "line": node.line}
            for id_, node in policy.disabled
        ]
    return json_document(document)


def yaml_lines(section: str, node: AnnotatedValue) -> Iterator[str]:
    """Yield a section of a policy as YAML, without sources."""
    yield from (line for line, _ in _section(section, node, overridden=False))


def block_lines(value: Any) -> list[str]:
    """Return a value in readable lines: a text as it is, a map as YAML with a line for each key."""
    if isinstance(value, str):
        return [for_terminal(line) for line in value.removesuffix(_NEWLINE).split(_NEWLINE)]
    if not isinstance(value, dict):
        return [flow_yaml(value)]
    return [
        line
        for key, child in value.items()
        for line, _ in _entry(f"{_scalar(key)}:", _without_source(child), "")
    ]


def _without_source(value: Any) -> AnnotatedValue:
    """Annotate a plain value as if all of it were on one line."""
    if isinstance(value, dict):
        value = {key: _without_source(child) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_without_source(child) for child in value]
    return AnnotatedValue(value, "", 0)


def _section(key: str, node: AnnotatedValue, *, overridden: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of a section, each with its comment."""
    if not isinstance(node.value, dict) or not node.value:
        yield from _entry(f"{key}:", node, "", overridden=overridden)
        return
    yield f"{key}:", ""
    for name, child in node.value.items():
        yield from _entry(f"  {_scalar(name)}:", child, "  ", overridden=overridden)


def _entry(
    head: str, node: AnnotatedValue, indent: str, *, overridden: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the lines of a value after `head`, each with its comment."""
    value = node.value
    comment = f"{node.location} ({for_terminal(node.note)})" if node.note else node.location
    if isinstance(value, str) and _is_block(value):
        yield f"{head} {'|' if value.endswith(_NEWLINE) else '|-'}", comment
        for line in value.removesuffix(_NEWLINE).split(_NEWLINE):
            yield f"{indent}  {line}" if line else "", ""
    elif _fits_on_line(node):
        yield f"{head} {flow_yaml(node.plain)}", comment
    elif isinstance(value, dict):
        yield head, comment if node.note else ""
        for key, child in value.items():
            inner = f"{indent}  "
            yield from _entry(f"{inner}{_scalar(key)}:", child, inner, overridden=overridden)
    elif isinstance(value, list):
        yield head, ""
        for child in value:
            yield from _item(child, f"{indent}  ", overridden=overridden)
    if overridden:
        yield from _overridden_comments(node, f"{indent}  ")


def _item(node: AnnotatedValue, indent: str, *, overridden: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of a list item, each with its comment."""
    inner = f"{indent}  "
    if _fits_on_line(node) or not isinstance(node.value, dict):
        yield f"{indent}- {flow_yaml(node.plain)}", node.location
    else:
        first = f"{indent}- "
        for key, child in node.value.items():
            yield from _entry(f"{first}{_scalar(key)}:", child, inner, overridden=overridden)
            first = inner
    if overridden:
        yield from _overridden_comments(node, inner)


def _is_block(text: str) -> bool:
    printable = all(for_terminal(line) == line for line in text.split(_NEWLINE))
    return printable and bool(_BLOCK.fullmatch(text))


def _overridden_comments(node: AnnotatedValue, indent: str) -> Iterator[tuple[str, str]]:
    for replaced in node.overridden:
        yield f"{indent}# was {flow_yaml(replaced.plain)} in {replaced.location}", ""


def _fits_on_line(node: AnnotatedValue) -> bool:
    """Return whether a value fits on one line: a scalar, or a short value from one source line."""
    if not isinstance(node.value, dict | list):
        return True
    descendants = [child for _, child in _iter_values(node, ())]
    if any(child.note or child.overridden for child in descendants):
        return False
    leaves = [child for child in descendants if not isinstance(child.value, dict | list)]
    locations = {leaf.location for leaf in leaves}
    only_scalars = isinstance(node.value, list) and len(leaves) == len(descendants)
    return len(locations) <= 1 and (only_scalars or len(flow_yaml(node.plain)) <= _COLUMN)


def flow_yaml(value: Any) -> str:
    """Return a value as YAML in flow style."""
    if isinstance(value, dict):
        items = (f"{_scalar(key)}: {flow_yaml(child)}" for key, child in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow_yaml, value))}]"
    return _scalar(value)


def _scalar(value: Scalar) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if "\\" in value and for_terminal(value) == value:
        return "'{}'".format(value.replace("'", "''"))
    return f'"{_escaped(value)}"'


def _escaped(text: str) -> str:
    safe = "".join(_ESCAPES.get(c, c if c.isprintable() else f"\\U{ord(c):08x}") for c in text)
    return safe.replace("##[", "##\\x5b")  # a GitHub Actions command


def _iter_leaves(
    node: AnnotatedValue, path: tuple[str | int, ...]
) -> Iterator[tuple[Any, AnnotatedValue]]:
    for child_path, child in _iter_values(node, path):
        if not isinstance(child.value, dict | list) or not child.value:
            yield child_path, child


def _iter_values(
    node: AnnotatedValue, path: tuple[str | int, ...]
) -> Iterator[tuple[Any, AnnotatedValue]]:
    if path:
        yield path, node
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from _iter_values(child, (*path, key))
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            yield from _iter_values(child, (*path, index))


def _setting(path: tuple[str | int, ...], node: AnnotatedValue) -> dict[str, Any]:
    found = {"path": list(path), **_located(node)}
    if node.note:
        found["note"] = node.note
    return found


def _located(node: AnnotatedValue) -> dict[str, Any]:
    return {"value": node.plain, "file": node.file, "line": node.line}
