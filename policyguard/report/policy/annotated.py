"""A merged policy as text and as JSON, each value with the file and line that it comes from.

The text is a policy again: YAML, with the places as comments behind the values.
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
"""What is no text, or was none in an older YAML."""
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_BLOCK = re.compile(r"\S(?:[^\n]*\n)+ *\S[^\n]*\n?")
"""Several lines that a block can hold as they are."""
_BREAK = "\n"
_COLUMN = 60
"""Where the places stand, unless the value is longer."""


@dataclass(frozen=True)
class AnnotatedValue:
    """A value, and where it stands: a scalar, a list, or a map.

    `note` says what else made it what it is. `before` are the values that it has taken the place
    of, the last one first.
    """

    value: Scalar | list[AnnotatedValue] | dict[str, AnnotatedValue]
    file: str
    line: int
    note: str = ""
    overridden: tuple[AnnotatedValue, ...] = ()

    @property
    def location(self) -> str:
        """File and line, as reports show them."""
        return f"{for_terminal(self.file)}:{self.line}"

    @property
    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: below.plain for key, below in self.value.items()}
        if isinstance(self.value, list):
            return [below.plain for below in self.value]
        return self.value


@dataclass(frozen=True)
class AnnotatedPolicy:
    """A policy, and what its layers have taken away: ids, each with the reason for it."""

    sections: AnnotatedValue
    disabled: tuple[tuple[str, AnnotatedValue], ...]


def render_text(policy: AnnotatedPolicy, *, overridden: bool) -> str:
    """The policy as YAML; with `overridden`, also what does not hold any more."""
    sections = policy.sections.value if isinstance(policy.sections.value, dict) else {}
    lines = [
        f"{line:<{_COLUMN}}  # {at}" if at else line
        for key, shown in sections.items()
        for line, at in _section(key, shown, overridden=overridden)
    ]
    if overridden:
        lines += [
            f"# {shown.location} disables {for_terminal(id_)}: {for_terminal(str(shown.value))}"
            for id_, shown in policy.disabled
        ]
    return "\n".join(lines)


def render_json(policy: AnnotatedPolicy, *, overridden: bool) -> str:
    """Every scalar with its path, its file and its line."""
    document: dict[str, Any] = {
        "settings": [_setting(path, shown) for path, shown in _leaves(policy.sections, ())]
    }
    if overridden:
        document["overridden"] = [
            {"path": list(path), **_located(before)}
            for path, shown in _walk(policy.sections, ())
            for before in shown.overridden
        ]
        document["disabled"] = [
            {"id": id_, "reason": shown.value, "file": shown.file, "line": shown.line}
            for id_, shown in policy.disabled
        ]
    return json_document(document)


def yaml_lines(section: str, shown: AnnotatedValue) -> Iterator[str]:
    """A section of a policy as YAML, without places."""
    yield from (line for line, _ in _section(section, shown, overridden=False))


def _section(key: str, shown: AnnotatedValue, *, overridden: bool) -> Iterator[tuple[str, str]]:
    """The lines of a section, each with what is said of its place; its entries have their own."""
    if not isinstance(shown.value, dict) or not shown.value:
        yield from _entry(f"{key}:", shown, "", overridden=overridden)
        return
    yield f"{key}:", ""
    for name, below in shown.value.items():
        yield from _entry(f"  {_scalar(name)}:", below, "  ", overridden=overridden)


def _entry(
    head: str, shown: AnnotatedValue, indent: str, *, overridden: bool = False
) -> Iterator[tuple[str, str]]:
    """The lines of a value behind `head`, each with what is said of its place."""
    value = shown.value
    said = f"{shown.location} ({for_terminal(shown.note)})" if shown.note else shown.location
    if isinstance(value, str) and _is_block(value):
        yield f"{head} {'|' if value.endswith(_BREAK) else '|-'}", said
        for line in value.removesuffix(_BREAK).split(_BREAK):
            yield f"{indent}  {line}" if line else "", ""
    elif _short(shown):
        yield f"{head} {flow_yaml(shown.plain)}", said
    elif isinstance(value, dict):
        yield head, said if shown.note else ""
        for key, below in value.items():
            inner = f"{indent}  "
            yield from _entry(f"{inner}{_scalar(key)}:", below, inner, overridden=overridden)
    elif isinstance(value, list):
        yield head, ""
        for below in value:
            yield from _item(below, f"{indent}  ", overridden=overridden)
    if overridden:
        yield from _before(shown, f"{indent}  ")


def _item(shown: AnnotatedValue, indent: str, *, overridden: bool) -> Iterator[tuple[str, str]]:
    """An item of a list, behind its dash."""
    inner = f"{indent}  "
    if _short(shown) or not isinstance(shown.value, dict):
        yield f"{indent}- {flow_yaml(shown.plain)}", shown.location
    else:
        first = f"{indent}- "
        for key, below in shown.value.items():
            yield from _entry(f"{first}{_scalar(key)}:", below, inner, overridden=overridden)
            first = inner
    if overridden:
        yield from _before(shown, inner)


def _is_block(text: str) -> bool:
    shown = all(for_terminal(line) == line for line in text.split(_BREAK))
    return shown and bool(_BLOCK.fullmatch(text))


def _before(shown: AnnotatedValue, indent: str) -> Iterator[tuple[str, str]]:
    for before in shown.overridden:
        yield f"{indent}# was {flow_yaml(before.plain)} in {before.location}", ""


def _short(shown: AnnotatedValue) -> bool:
    """Whether a value is shown in one line: a scalar, or what stands in one line and is short."""
    if not isinstance(shown.value, dict | list):
        return True
    below = [inner for _, inner in _walk(shown, ())]
    if any(inner.note or inner.overridden for inner in below):
        return False
    leaves = [inner for inner in below if not isinstance(inner.value, dict | list)]
    places = {inner.location for inner in leaves}
    scalars = isinstance(shown.value, list) and len(leaves) == len(below)
    return len(places) <= 1 and (scalars or len(flow_yaml(shown.plain)) <= _COLUMN)


def flow_yaml(value: Any) -> str:
    """A value as YAML writes it in one line."""
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
    return safe.replace("##[", "##\\x5b")  # a command in the log of GitHub Actions


def _leaves(
    shown: AnnotatedValue, path: tuple[str | int, ...]
) -> Iterator[tuple[Any, AnnotatedValue]]:
    for inner, below in _walk(shown, path):
        if not isinstance(below.value, dict | list) or not below.value:
            yield inner, below


def _walk(
    shown: AnnotatedValue, path: tuple[str | int, ...]
) -> Iterator[tuple[Any, AnnotatedValue]]:
    if path:
        yield path, shown
    if isinstance(shown.value, dict):
        for key, below in shown.value.items():
            yield from _walk(below, (*path, key))
    elif isinstance(shown.value, list):
        for number, below in enumerate(shown.value):
            yield from _walk(below, (*path, number))


def _setting(path: tuple[str | int, ...], shown: AnnotatedValue) -> dict[str, Any]:
    found = {"path": list(path), **_located(shown)}
    if shown.note:
        found["note"] = shown.note
    return found


def _located(shown: AnnotatedValue) -> dict[str, Any]:
    return {"value": shown.plain, "file": shown.file, "line": shown.line}
