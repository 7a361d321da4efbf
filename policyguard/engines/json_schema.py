"""JSON Schema 2020-12 validation that reports every problem. The only importer of `jsonschema`.

Surprises of the library:

- A value that fits no branch of an `anyOf` is one error, its reasons nested by branch. Here the
  problems of the intended branch replace it.
- One error lists all unknown keys of an object; here each key has its own.
- Importing it takes 60 ms, so it is imported on first use.
- Its `pattern` is Python's `re`, so the schemas keep their patterns simple. There `$` also matches
  before a final line break, which would let one into a policy; here it is the very end.
- It accepts 1e308 as an integer. Here an integer has 64 bits, however it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from policyguard.model.amounts import is_whole

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

Path = tuple[str | int, ...]


class ValidationProblem(NamedTuple):
    """A value that violates one keyword of the schema.

    `path` leads to the value, or for `additionalProperties` and `propertyNames` to the key.
    `expected` is the keyword's own value, `schema` the object that contains it.
    """

    path: Path
    keyword: str
    expected: Any
    value: Any
    schema: Mapping[str, Any]


class Schema:
    """A compiled JSON Schema."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._validator = _validator()(document)

    def validate(self, value: object) -> list[ValidationProblem]:
        """Return every problem of `value`, in document order."""
        return [
            problem
            for error in self._validator.iter_errors(value)
            for problem in _split_error(error)
        ]


@cache
def _validator() -> Any:
    import jsonschema

    def pattern(
        _validator: object, regex: str, value: object, _schema: object
    ) -> Iterator[ValidationError]:
        if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", regex), value):
            yield jsonschema.ValidationError("")

    draft: Any = jsonschema.Draft202012Validator  # untyped stubs
    types = draft.TYPE_CHECKER.redefine("integer", _is_integer)
    extend: Any = jsonschema.validators.extend
    return extend(draft, {"pattern": pattern}, type_checker=types)


def _is_integer(_checker: object, value: object) -> bool:
    if isinstance(value, float):
        return is_whole(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _split_error(error: ValidationError) -> Iterator[ValidationProblem]:
    keyword = str(error.validator)
    path: Path = tuple(error.absolute_path)
    value: Any = error.instance
    if "propertyNames" in error.relative_schema_path:
        yield ValidationProblem((*path, value), "propertyNames", *_error_context(error))
    elif keyword == "additionalProperties":
        known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
        for key in value:
            if key not in known:
                yield ValidationProblem((*path, key), keyword, *_error_context(error))
    elif not isinstance(value, dict) and _only_requires_keys(error):
        return  # the error of `type` says that it is not an object
    elif keyword in ("anyOf", "oneOf") and (branch := _intended_branch(error)) is not None:
        for child in branch:
            yield from _split_error(child)
    else:
        yield ValidationProblem(path, keyword, *_error_context(error))


def _error_context(error: ValidationError) -> tuple[Any, Any, Mapping[str, Any]]:
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    return error.validator_value, error.instance, schema


def _intended_branch(error: ValidationError) -> list[ValidationError] | None:
    """Return the errors of the branch that the author most likely meant.

    That is the only branch that accepts the value's kind (text, list, map …). Return None if there
    is none, or if the branches only require keys.
    """
    if _only_requires_keys(error):
        return None
    branches: dict[int, list[ValidationError]] = {}
    for child in error.context or ():
        branches.setdefault(int(child.relative_schema_path[0]), []).append(child)
    matching = [errors for errors in branches.values() if _fits_kind(errors)]
    return matching[0] if len(matching) == 1 else None


def _only_requires_keys(error: ValidationError) -> bool:
    """Whether the keyword only requires keys of an object."""
    branches: Any = error.validator_value
    if error.validator == "not":
        branches = [branches]
    elif error.validator not in ("anyOf", "oneOf"):
        return False
    return all(branch.keys() == {"required"} for branch in branches)


def _fits_kind(errors: Iterable[ValidationError]) -> bool:
    """Whether a branch with these errors accepts values of this kind."""
    return not any(
        error.validator in ("type", "const", "enum") and not error.relative_path for error in errors
    )
