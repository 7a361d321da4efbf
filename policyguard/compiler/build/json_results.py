"""Reading results as JSON, for `outcome.data`."""

from __future__ import annotations

from typing import Any

import msgspec

from policyguard.cel.errors import CelLimitError, OperationError


class JsonResultParser:
    """A reader of JSON of at most `max_chars` characters, nested at most `max_depth` levels."""

    def __init__(self, max_chars: int, max_depth: int) -> None:
        self._max_chars = max_chars
        self._max_depth = max_depth

    def parse(self, text: str) -> Any:
        """Return the value of a JSON text.

        `ValueError` if it is no JSON, `CelLimitError` if it is too large or too deep, and
        `OperationError` if an object has a name twice: readers differ on which value counts.
        """
        import json  # slow import

        if text.lstrip(_WHITE_SPACE)[:1] not in _FIRST_LETTERS:
            raise ValueError(_NO_JSON)
        if len(text) > self._max_chars:
            raise CelLimitError(
                "limit-size", f"the result has more than {self._max_chars:,} characters"
            )
        encoded = text.encode("utf-8", "replace")
        try:
            value = msgspec.json.decode(encoded)
        except RecursionError:
            raise self._too_deep() from None
        except msgspec.DecodeError:
            raise ValueError(_NO_JSON) from None
        if _is_deeper_than(value, self._max_depth):
            raise self._too_deep()
        # Numbers stay texts here: only the names of objects matter.
        json.loads(encoded, object_pairs_hook=_check_names, parse_int=str, parse_float=str)
        return value

    def _too_deep(self) -> CelLimitError:
        return CelLimitError(
            "limit-depth", f"the result nests deeper than {self._max_depth} levels"
        )


def _check_names(pairs: list[tuple[str, Any]]) -> None:
    """Raise `OperationError` if an object has a name twice."""
    if len(dict(pairs)) < len(pairs):
        raise OperationError("duplicate-key", "an object of the result has a name twice")


def _is_deeper_than(value: Any, levels: int) -> bool:
    """Whether lists and objects nest more than so many levels."""
    level = [value]
    for _ in range(levels + 1):
        level = [
            item
            for container in level
            if isinstance(container, (dict, list))
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True


_WHITE_SPACE = " \t\r\n"
_FIRST_LETTERS = frozenset('{["-0123456789tfn')
_NO_JSON = "the result is not JSON"
