"""Read the values of a policy's params, from the environment or their defaults.

A value has the type of its default: `20.0` allows fractions, `20` only whole numbers. A value
outside its bounds is an error, never clamped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Environ
from typing import NamedTuple

from policyguard.compiler.load import scalars
from policyguard.engines import yaml_scalars
from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode
from policyguard.model.diagnostic import Diagnostic, quote_text
from policyguard.model.policy import Value

_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[-+]?[0-9]{1,18}\.[0-9]{1,18}")


class ParamValues(NamedTuple):
    """The value of each valid param, and the environment variables read."""

    values: dict[str, Value]
    environ: dict[str, str]
    diagnostics: list[Diagnostic]


def read_params(section: Node | None, environ: Environ[str, str]) -> ParamValues:
    """Read the `params` of a merged policy."""
    params = ParamValues({}, {}, [])
    if isinstance(section, MappingNode):
        for key, entry in section.entries:
            if isinstance(entry, ScalarNode):
                params.diagnostics.extend(_yaml_trap_warnings(entry))
                if error := _check_not_reference(key, entry):
                    params.diagnostics.append(error)
                else:
                    params.values[key.text] = default_value(entry)
            elif isinstance(entry, MappingNode):
                _read_param(key, entry, environ, params)
    return params


def _read_param(
    key: ScalarNode, entry: MappingNode, environ: Environ[str, str], params: ParamValues
) -> None:
    default, variable = _get_scalar(entry, "default"), _get_scalar(entry, "env")
    if default is None:
        return
    bounds = {name: found for name in ("min", "max") if (found := _get_scalar(entry, name))}
    params.diagnostics.extend(_yaml_trap_warnings(default))
    if error := _check_not_reference(key, default) or _check_bounds(default, bounds):
        params.diagnostics.append(error)
        return
    value = default_value(default)
    unit = _get_scalar(entry, "unit")
    if unit is not None and scalars.scalar_kind(value) != "duration":
        message = f"`unit` is for durations, but the default of `{key.text}` is not one"
        params.diagnostics.append(_error(unit, "scalar/param", message))
        return
    if problem := _describe_out_of_bounds(value, bounds):
        message = f"the default of `{key.text}` is {problem}"
        params.diagnostics.append(_error(default, "scalar/param", message))
        return
    if variable is not None and variable.text in environ:
        text = environ[variable.text]
        params.environ[variable.text] = text
        bare = unit is not None and text.isascii() and text.isdigit()
        parsed = _parse_variable(f"{text}{unit.text}" if unit is not None and bare else text, value)
        shown = f"`{variable.text}` in the environment is {quote_text(text)}"
        if parsed is None or scalars.parse_reference(parsed):
            message, hint = f"{shown}, not {_describe_kind(value)}", _unit_hint(unit)
        elif problem := _describe_out_of_bounds(parsed, bounds):
            message, hint = f"{shown}, {problem}", _bounds_hint(bounds)
        else:
            value, message, hint = parsed, "", None
        if message:
            params.diagnostics.append(_error(variable, "scalar/environment", message, hint))
            return
    params.values[key.text] = value


def _yaml_trap_warnings(value: ScalarNode) -> list[Diagnostic]:
    """Warn if YAML 1.1 would not have read `value` as text."""
    trap = (
        yaml_scalars.yaml11_reading(value.text)
        if value.value == value.text and not value.style
        else None
    )
    if trap is None:
        return []
    message = f"{quote_text(value.text)} is text in YAML 1.2, not a {trap.kind}"
    hint = f'write `{trap.replacement}`, or `"{value.text}"` if it is text'
    code = f"yaml/{trap.kind}-trap"
    source = value.source
    return [source.diagnostic(code, message, value.span, hint=hint, severity="warning")]


def _check_not_reference(key: ScalarNode, value: ScalarNode) -> Diagnostic | None:
    """Report a param whose value is the name of another."""
    if scalars.parse_reference(value.value) is None:
        return None
    message = f"`{value.text}` refers to another name; a param needs its own value"
    hint = f"write the value here, or use `{value.text}` instead of `${key.text}`"
    return _error(value, "scalar/param", message, hint)


def _check_bounds(default: ScalarNode, bounds: dict[str, ScalarNode]) -> Diagnostic | None:
    kind = scalars.scalar_kind(_scalar_value(default))
    for name, bound in bounds.items():
        if kind not in ("number", "duration"):
            return _error(bound, "scalar/param", f"`{name}` is for numbers and durations")
        if scalars.scalar_kind(_scalar_value(bound)) != kind:
            message = f"`{name}` is not a {kind} like the default"
            return _error(bound, "scalar/param", message)
    if len(bounds) == 2 and _to_number(_scalar_value(bounds["min"])) > _to_number(
        _scalar_value(bounds["max"])
    ):
        return _error(bounds["min"], "scalar/param", "`min` is above `max`")
    return None


def _describe_out_of_bounds(value: Value, bounds: dict[str, ScalarNode]) -> str | None:
    if "min" in bounds and _to_number(value) < _to_number(_scalar_value(bounds["min"])):
        return f"below the minimum {bounds['min'].text}"
    if "max" in bounds and _to_number(value) > _to_number(_scalar_value(bounds["max"])):
        return f"above the maximum {bounds['max'].text}"
    return None


def _to_number(value: Value) -> float:
    if isinstance(value, str):
        found = scalars.parse_duration(value)
        return found if found is not None else scalars.parse_count(value) or 0
    return value


def _unit_hint(unit: ScalarNode | None) -> str | None:
    return f"a bare number is in `{unit.text}`" if unit is not None else None


def _bounds_hint(bounds: dict[str, ScalarNode]) -> str:
    return " and ".join(
        f"at {'least' if name == 'min' else 'most'} {bound.text}" for name, bound in bounds.items()
    )


def _parse_variable(text: str, default: Value) -> Value | None:
    """Parse an environment variable's text; None if it is not of the default's kind."""
    match scalars.scalar_kind(default):
        case "boolean":
            return {"true": True, "false": False}.get(text)
        case "duration":
            return text if scalars.parse_duration(text) is not None else None
        case "text":
            return text
    found = scalars.parse_count(text)
    if found is None and _INTEGER.fullmatch(text):
        found = int(text)
    if isinstance(default, float):
        return float(text) if _DECIMAL.fullmatch(text) else None if found is None else float(found)
    return found


def _describe_kind(default: Value) -> str:
    if isinstance(default, bool):
        return "`true` or `false`"
    if isinstance(default, int):
        return "a whole number"
    if isinstance(default, float):
        return "a number"
    return "a duration" if scalars.parse_duration(default) is not None else "a literal value"


def _scalar_value(scalar: ScalarNode) -> Value:
    """Return the value of a scalar that the schema requires to have one."""
    return "" if scalar.value is None else scalar.value


def default_value(scalar: ScalarNode) -> Value:
    """Return a param's default, with `500k` as a number."""
    value = _scalar_value(scalar)
    found = scalars.parse_count(value) if isinstance(value, str) else None
    return value if found is None else found


def _get_scalar(entry: MappingNode, key: str) -> ScalarNode | None:
    found = entry.get(key)
    return found if isinstance(found, ScalarNode) else None


def _error(at: ScalarNode, code: str, message: str, hint: str | None = None) -> Diagnostic:
    return at.source.diagnostic(code, message, at.span, hint=hint)
