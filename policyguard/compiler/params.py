"""The values of a policy's params: the environment's where it gives one, else the default.

A value is of its default's type: `20.0` says that it may be a fraction, `20` that it is a whole
number. One outside of its bounds is refused, never moved to the nearest one inside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Environ
from typing import NamedTuple

from policyguard.compiler import scalars
from policyguard.engines import yaml_core
from policyguard.engines.yaml_tree import Mapping, Node, Scalar
from policyguard.model.diagnostic import Diagnostic, quoted
from policyguard.model.policy import Value

_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[-+]?[0-9]{1,18}\.[0-9]{1,18}")


class Params(NamedTuple):
    """The value of each param that has one, and which variables of the environment were read."""

    values: dict[str, Value]
    environ: dict[str, str]
    diagnostics: list[Diagnostic]


def read(section: Node | None, environ: Environ[str, str]) -> Params:
    """Read the `params` of a merged policy."""
    params = Params({}, {}, [])
    if isinstance(section, Mapping):
        for key, entry in section.entries:
            if isinstance(entry, Scalar):
                params.diagnostics.extend(_trapped(entry))
                if wrong := _borrowed(key, entry):
                    params.diagnostics.append(wrong)
                else:
                    params.values[key.text] = value_of(entry)
            elif isinstance(entry, Mapping):
                _read(key, entry, environ, params)
    return params


def _read(key: Scalar, entry: Mapping, environ: Environ[str, str], params: Params) -> None:
    default, variable = _scalar(entry, "default"), _scalar(entry, "env")
    if default is None:
        return
    bounds = {name: found for name in ("min", "max") if (found := _scalar(entry, name))}
    params.diagnostics.extend(_trapped(default))
    if wrong := _borrowed(key, default) or _wrong_bounds(default, bounds):
        params.diagnostics.append(wrong)
        return
    value = value_of(default)
    unit = _scalar(entry, "unit")
    if unit is not None and scalars.kind(value) != "duration":
        message = f"`unit` is for durations, and the default of `{key.text}` is none"
        params.diagnostics.append(_error(unit, "scalar/param", message))
        return
    if beyond := _beyond(value, bounds):
        message = f"the default of `{key.text}` is {beyond}"
        params.diagnostics.append(_error(default, "scalar/param", message))
        return
    if variable is not None and variable.text in environ:
        text = environ[variable.text]
        params.environ[variable.text] = text
        bare = unit is not None and text.isascii() and text.isdigit()
        taken = _from_text(f"{text}{unit.text}" if unit is not None and bare else text, value)
        shown = f"`{variable.text}` in the environment is {quoted(text)}"
        if taken is None or scalars.reference(taken):
            message, hint = f"{shown}, not {_wanted(value)}", _unit(unit)
        elif beyond := _beyond(taken, bounds):
            message, hint = f"{shown}, {beyond}", _range(bounds)
        else:
            value, message, hint = taken, "", None
        if message:
            params.diagnostics.append(_error(variable, "scalar/environment", message, hint))
            return
    params.values[key.text] = value


def _trapped(value: Scalar) -> list[Diagnostic]:
    """A warning where YAML 1.1 would have read `value` as something else than text."""
    trap = yaml_core.trap(value.text) if value.value == value.text and not value.style else None
    if trap is None:
        return []
    message = f"{quoted(value.text)} is text in YAML 1.2, not a {trap.kind}"
    hint = f'write `{trap.instead}`, or `"{value.text}"` if it is text'
    code = f"yaml/{trap.kind}-trap"
    source = value.source
    return [source.diagnostic(code, message, value.span, hint=hint, severity="warning")]


def _borrowed(key: Scalar, value: Scalar) -> Diagnostic | None:
    """What is wrong where a param would have its value from another name."""
    if scalars.reference(value.value) is None:
        return None
    message = f"a param has a value of its own; `{value.text}` is the name of another"
    hint = f"write the value here, or `{value.text}` where `${key.text}` stands"
    return _error(value, "scalar/param", message, hint)


def _wrong_bounds(default: Scalar, bounds: dict[str, Scalar]) -> Diagnostic | None:
    kind = scalars.kind(_given(default))
    for name, bound in bounds.items():
        if kind not in ("number", "duration"):
            return _error(bound, "scalar/param", f"`{name}` is for numbers and durations")
        if scalars.kind(_given(bound)) != kind:
            message = f"`{name}` is not a {kind} as the default is"
            return _error(bound, "scalar/param", message)
    if len(bounds) == 2 and _size(_given(bounds["min"])) > _size(_given(bounds["max"])):
        return _error(bounds["min"], "scalar/param", "`min` is above `max`")
    return None


def _beyond(value: Value, bounds: dict[str, Scalar]) -> str | None:
    if "min" in bounds and _size(value) < _size(_given(bounds["min"])):
        return f"below the minimum {bounds['min'].text}"
    if "max" in bounds and _size(value) > _size(_given(bounds["max"])):
        return f"above the maximum {bounds['max'].text}"
    return None


def _size(value: Value) -> float:
    if isinstance(value, str):
        found = scalars.duration(value)
        return found if found is not None else scalars.count(value) or 0
    return value


def _unit(unit: Scalar | None) -> str | None:
    return f"a bare number counts in `{unit.text}`" if unit is not None else None


def _range(bounds: dict[str, Scalar]) -> str:
    return " and ".join(
        f"at {'least' if name == 'min' else 'most'} {bound.text}" for name, bound in bounds.items()
    )


def _from_text(text: str, default: Value) -> Value | None:
    """The value that an environment variable's text stands for; None: not of the default's kind."""
    match scalars.kind(default):
        case "boolean":
            return {"true": True, "false": False}.get(text)
        case "duration":
            return text if scalars.duration(text) is not None else None
        case "text":
            return text
    found = scalars.count(text)
    if found is None and _INTEGER.fullmatch(text):
        found = int(text)
    if isinstance(default, float):
        return float(text) if _DECIMAL.fullmatch(text) else None if found is None else float(found)
    return found


def _wanted(default: Value) -> str:
    if isinstance(default, bool):
        return "`true` or `false`"
    if isinstance(default, int):
        return "a whole number"
    if isinstance(default, float):
        return "a number"
    return "a duration" if scalars.duration(default) is not None else "a value of its own"


def _given(scalar: Scalar) -> Value:
    """The value of a scalar that the schema has found to have one."""
    return "" if scalar.value is None else scalar.value


def value_of(scalar: Scalar) -> Value:
    """What a param's default says, `500k` as the number that it stands for."""
    value = _given(scalar)
    found = scalars.count(value) if isinstance(value, str) else None
    return value if found is None else found


def _scalar(entry: Mapping, key: str) -> Scalar | None:
    found = entry.get(key)
    return found if isinstance(found, Scalar) else None


def _error(at: Scalar, code: str, message: str, hint: str | None = None) -> Diagnostic:
    return at.source.diagnostic(code, message, at.span, hint=hint)
