"""No pattern relies on possessive groups, which Python up to 3.11.4 matches wrongly."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]  # not in typeshed
from typing import Any

import policyguard
from policyguard.engines.lazy_pattern import _LazyPattern

_ONE = {_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY}


def _is_group(node: Any) -> bool:
    """Whether what is repeated may be matched in more than one way."""
    return len(node) > 1 or node[0][0] not in _ONE


def _find_possessive_groups(nodes: Any) -> Iterator[Any]:
    for operator, value in nodes:
        if operator is _constants.POSSESSIVE_REPEAT and _is_group(value[2]):
            yield value[2]
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, _parser.SubPattern):
                yield from _find_possessive_groups(part)
            elif isinstance(part, list):
                for branch in part:
                    if isinstance(branch, _parser.SubPattern):
                        yield from _find_possessive_groups(branch)


def _sources() -> Iterator[tuple[str, str | bytes, int]]:
    """Yield the place, source and flags of each pattern in the modules of the package."""
    for info in pkgutil.walk_packages(policyguard.__path__, "policyguard."):
        if info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # of an extra that is not installed
            continue
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                yield f"{info.name}.{name}", value.pattern, value.flags & re.VERBOSE
            elif isinstance(value, _LazyPattern):
                yield f"{info.name}.{name}", value._source, value._flags & re.VERBOSE


def test_no_group_is_possessive() -> None:
    """`(?:a|b c)++` is to be written `(?>(?:a|b c)+)`, which means the same.

    https://github.com/python/cpython/issues/106052
    """
    sources = list(_sources())
    assert len(sources) > 100
    found = [
        place
        for place, source, flags in sources
        if any(_find_possessive_groups(_parser.parse(source, flags)))
    ]
    assert found == []


def test_possessive_groups_are_found() -> None:
    parse = _parser.parse
    assert list(_find_possessive_groups(parse("x(?:a|b c)++")))
    assert list(_find_possessive_groups(parse("(?:x|(?:a|bc)*+)")))
    assert not list(_find_possessive_groups(parse(r"[ab]++(?>(?:a|bc)+)\w*+")))
