"""Plain YAML scalars: the core schema of YAML 1.2, and the traps of YAML 1.1.

YAML 1.1, which most tools still read, takes `no` for a boolean, `017` for 15, `12:30:45` for 45045
and `1_000` for a number. Here YAML 1.2 decides, and an author who meant a boolean or a number gets
a diagnostic.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from policyguard.model.amounts import format_number
from policyguard.model.policy import Value

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")

_YAML11_TRUE = frozenset(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"))
_YAML11_FALSE = frozenset(("n", "N", "no", "No", "NO", "off", "Off", "OFF"))
_UNDERSCORED = re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(?::[0-5]?[0-9])+(?:\.[0-9]*)?")
_MAX_NUMBER_LENGTH = 32
"""Longer numbers exceed 64 bits in any notation."""


class Yaml11Reading(NamedTuple):
    """What YAML 1.1 reads a scalar as, and how to write that in YAML 1.2."""

    kind: Literal["boolean", "number"]
    replacement: str


class NumberError(ValueError):
    """A text that looks like a number but is not a valid one. The message says why."""


def resolve_scalar(text: str) -> Value | None:
    """Return the value of the plain scalar `text`.

    Raises `NumberError` for a number beyond 64 bits, not finite, or read differently by YAML 1.1
    and 1.2.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return _parse_integer(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise NumberError("is too large")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise NumberError("is not a finite number")
    return text


def yaml11_reading(text: str) -> Yaml11Reading | None:
    """Return what YAML 1.1 reads `text`, a string in YAML 1.2, as; None if also a string."""
    if text in _YAML11_TRUE or text in _YAML11_FALSE:
        return Yaml11Reading("boolean", "true" if text in _YAML11_TRUE else "false")
    if "_" in text and _UNDERSCORED.fullmatch(text):
        return Yaml11Reading("number", text.replace("_", ""))
    if _SEXAGESIMAL.fullmatch(text) and len(text) <= _MAX_NUMBER_LENGTH:
        total = 0.0
        for part in text.lstrip("+-").split(":"):
            total = total * 60 + float(part)
        return Yaml11Reading("number", f"{'-' if text[0] == '-' else ''}{format_number(total)}")
    return None


def _parse_integer(text: str) -> int:
    if _LEADING_ZERO.fullmatch(text):
        raise NumberError("begins with a zero: YAML 1.1 reads it as octal, YAML 1.2 does not")
    if len(text) <= _MAX_NUMBER_LENGTH:
        number = int(text, 0)
        if -(2**63) <= number < 2**63:
            return number
    raise NumberError("does not fit into 64 bits")
