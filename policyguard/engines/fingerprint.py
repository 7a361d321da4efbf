"""Fingerprints: keyed hashes that decide whether two calls, results or errors are the same.

Deterministic MessagePack distinguishes what JSON text confuses (1, 1.0 and true). Values it cannot
hold (integers above 64 bits, lone surrogates) are hashed as ASCII JSON, under another kind. The key
keeps short secrets in arguments from being guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from math import isfinite
from typing import Any

import msgspec

from policyguard.model.errors import ArgumentsError, NonPlainArgumentsError

_pack = msgspec.msgpack.Encoder(order="deterministic").encode
_ATOMIC_CLASSES = frozenset({str, int, bool, type(None)})
_CONTAINER_CLASSES = frozenset({dict, list, tuple})
_DIGEST_SIZE = 12
"""Bytes of a fingerprint. A million sessions of a thousand calls collide by chance once in 10¹¹
times, and without the key no collision can be constructed."""
_WILDCARD = "*"
"""In `fold` and `tolerance`: every argument that is not named."""
_MAX_TOLERANT_INT = 2**1023
"""Larger integers do not fit into a float; they are compared exactly."""
_MAX_TOLERANT_NUMBERS = 64
"""Numbers of one call that may vary; with more of them, all are compared exactly."""
_TOO_DEEP = "they are nested deeper than Python can read"
_TOO_LARGE = "they are larger than {} bytes"
_MAX_SHOWN_PATH_LENGTH = 80
"""Characters of a path in a message."""


class NotJsonError(ArgumentsError, ValueError):
    """A value that JSON cannot hold, or that is too large or too deep."""


class _NonPlainValueError(Exception):
    """A value of a type that JSON decoding never returns; it may be JSON all the same."""


class OpaqueText(str):
    """Stands for an argument that is not data, such as a client. No two are equal."""

    __slots__ = ()


class Fingerprinter:
    """Computes fingerprints under a policy's `classify.fingerprint` and `bounds`.

    `ignore` and `fold` name arguments: a plain name at any depth, a dotted one from the top.
    `tolerance` names top-level arguments whose numbers are left out and returned beside the
    fingerprint. `*` means every text in `fold` and every number in `tolerance`, at any depth; a
    name beside it then applies at any depth, to everything below it. `depth` and `size` (bytes,
    packed) limit the arguments.
    """

    def __init__(
        self,
        key: bytes,
        *,
        ignore: tuple[str, ...],
        fold: tuple[str, ...],
        tolerance: Mapping[str, float],
        depth: int,
        size: int,
    ) -> None:
        self._ignore = frozenset(ignore)
        self._fold = frozenset(fold)
        self._fold_all = _WILDCARD in fold
        self._kept_classes = _ATOMIC_CLASSES - {str} if self._fold_all else _ATOMIC_CLASSES
        self._special_names = self._ignore | self._fold
        self._special_keys = frozenset(_key_suffixes(self._special_names))
        self._tolerance = {
            name: share for name, share in sorted(tolerance.items()) if name != _WILDCARD
        }
        self._default_tolerance = tolerance.get(_WILDCARD)
        self._has_tolerance = bool(tolerance)
        self._max_depth = depth
        self._max_size = size
        self.rekey(key)

    def rekey(self, key: bytes) -> None:
        """Switch to another key; earlier fingerprints cannot be compared any more."""
        self.key = key[:64]
        self._msgpack_hash, self._json_hash, self._text_hash = (
            _keyed_hash(self.key, kind) for kind in (b"M", b"J", b"T")
        )

    def fingerprint_call(
        self, tool: str, server: str, args: dict[str, Any]
    ) -> tuple[str, str, tuple[float, ...]]:
        """Return the exact fingerprint, the one without tolerated numbers (or ""), and these.

        The lists and objects in `args` are replaced by copies, so that their owner cannot change
        them any more. Few calls have any, and most pay nothing for it. Raises `NotJsonError` with
        the reason, and `NonPlainArgumentsError` for arguments that are JSON but not of Python's own
        types. The time this takes is bounded by `size`, even if containers share their items.
        """
        normalized: Any = args
        kept_classes, names = self._kept_classes, self._special_names
        try:
            for name, value in args.items():
                if type(value) not in kept_classes or name in names:
                    special: list[object] = []
                    self._copy_items(args, 1, self._max_size - len(args), special)
                    if special or self._fold_all:
                        normalized = self._normalize(args, "")
                        if normalized != args:  # check what was dropped, too
                            self.fingerprint_value((tool, server, args))
                    break
            if self._has_tolerance:
                return self._fingerprint_tolerant(tool, server, normalized)
            try:  # as `fingerprint_value` does, without the cost of a call
                packed = _pack((tool, server, normalized))
            except (OverflowError, UnicodeEncodeError):
                return self.fingerprint_value((tool, server, normalized)), "", ()
            if len(packed) > self._max_size:
                raise NotJsonError(_TOO_LARGE.format(self._max_size))
            hasher = self._msgpack_hash.copy()
            hasher.update(packed)
            return hasher.hexdigest(), "", ()
        except (_NonPlainValueError, TypeError):  # TypeError: MessagePack keys are strings
            conversion = _PlainConversion(self._ignore, self._max_depth, self._max_size)
            try:
                plain = conversion.convert(args)
            except RecursionError:
                raise NotJsonError(_TOO_DEEP) from None
            raise NonPlainArgumentsError(plain, conversion.opaque) from None
        except RecursionError:
            raise NotJsonError(_TOO_DEEP) from None

    def fingerprint_text(self, text: str) -> str:
        """Return the fingerprint of a text."""
        hasher = self._text_hash.copy()
        try:
            hasher.update(text.encode())
        except UnicodeEncodeError:  # half a surrogate pair
            hasher.update(text.encode("utf-8", "surrogatepass"))
        return hasher.hexdigest()

    def _fingerprint_tolerant(
        self, tool: str, server: str, args: dict[str, Any]
    ) -> tuple[str, str, tuple[float, ...]]:
        exact = self.fingerprint_value((tool, server, args))
        present = [name for name in self._tolerance if _is_tolerable(args.get(name))]
        numbers = [float(args[name]) if name in present else 0.0 for name in self._tolerance]
        rest: Any = {name: value for name, value in args.items() if name not in present}
        if self._default_tolerance is not None:
            rest = self._without_numbers(rest, "", self._default_tolerance, present, numbers)
        if not present or len(present) > _MAX_TOLERANT_NUMBERS:
            return exact, "", ()
        return exact, self.fingerprint_value((tool, server, rest, present)), tuple(numbers)

    def fingerprint_value(self, value: Any) -> str:
        """Return the fingerprint of a value, unchanged.

        Raises `NotJsonError`, and `TypeError` for a value that MessagePack cannot hold.
        """
        try:
            packed = _pack(value)
            hasher = self._msgpack_hash.copy()
        except (OverflowError, UnicodeEncodeError):
            packed = _encode_ascii_json(value)
            hasher = self._json_hash.copy()
        except RecursionError:
            raise NotJsonError(_TOO_DEEP) from None
        if len(packed) > self._max_size:
            raise NotJsonError(_TOO_LARGE.format(self._max_size))
        hasher.update(packed)
        return hasher.hexdigest()

    def is_within_tolerance(self, expected: tuple[float, ...], numbers: tuple[float, ...]) -> bool:
        """Whether each number lies within the tolerance of the expected one."""
        named = len(self._tolerance)
        shares = chain(self._tolerance.values(), repeat(self._default_tolerance or 0.0))
        if named and self._default_tolerance is not None:
            shares = chain(self._tolerance.values(), expected[named + 1 :: 2])
            expected, numbers = (one[:named] + one[named::2] for one in (expected, numbers))
        pairs = zip(zip(expected, numbers, strict=True), shares, strict=False)
        return all(abs(number - base) <= share * abs(base) for (base, number), share in pairs)

    def _without_numbers(
        self, value: Any, path: str, share: float, present: list[str], numbers: list[float]
    ) -> Any:
        """Return `value` without numbers; append them to `numbers`, their paths to `present`.

        If some have their own tolerance, each number is followed by its share. Keys are visited in
        sorted order, so that their order in the call makes no difference.
        """
        if _is_tolerable(value):
            present.append(f"{path}~{share}" if self._tolerance else path)
            numbers += (float(value), share) if self._tolerance else (float(value),)
            return None
        if isinstance(value, Mapping):
            shares = self._tolerance
            return {
                name: self._without_numbers(
                    value[name], f"{path}.{name}", shares.get(name, share), present, numbers
                )
                for name in sorted(value)
            }
        if isinstance(value, (list, tuple)):
            return [
                self._without_numbers(item, f"{path}.{index}", share, present, numbers)
                for index, item in enumerate(value)
            ]
        return value

    def _copy_items(self, container: Any, depth: int, room: int, special: list[object]) -> int:
        """Replace the lists and objects in a container by copies, at any depth.

        Checks classes, depth and size on the way: a list with more items than `room` is not read.
        Returns the room that is left. What needs `_normalize` is added to `special`.
        """
        is_list = type(container) is list
        if not (is_list or self._special_keys.isdisjoint(container)):
            special.append(container)
        for place, value in enumerate(container) if is_list else container.items():
            if type(place) is not str and not is_list:
                raise _NonPlainValueError
            kind = type(value)
            if kind in _ATOMIC_CLASSES:
                continue
            if kind is float:
                if not isfinite(value):
                    special.append(value)  # `_normalize` says where it is
                continue
            if kind not in _CONTAINER_CLASSES:
                raise _NonPlainValueError
            if depth >= self._max_depth:
                raise NotJsonError(f"they are nested deeper than {self._max_depth} levels")
            room -= len(value)
            if room < 0:
                raise NotJsonError(_TOO_LARGE.format(self._max_size))
            copy = [*value] if kind is tuple else value.copy()
            if copy:
                room = self._copy_items(copy, depth + 1, room, special)
            container[place] = tuple(copy) if kind is tuple else copy
        return room

    def _normalize(self, value: Any, path: str) -> Any:
        """Drop ignored arguments and fold folded ones, in arguments that have been copied."""
        kind = value.__class__
        if kind in _ATOMIC_CLASSES:
            return _fold_text(value) if self._fold_all else value
        if kind is float:
            if not isfinite(value):
                raise NotJsonError(f"{_quote_path(path)} is {value}, which is not JSON")
            return value
        if kind is not dict:
            return [self._normalize(item, path) for item in value]
        result = {}
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            normalized = self._normalize(item, inner)  # ignored ones must be JSON
            if name in self._ignore or inner in self._ignore:
                continue
            if name in self._fold or inner in self._fold:
                normalized = _fold_text(normalized)
            result[name] = normalized
        return result


class _PlainConversion:
    """A conversion of arguments to the types that JSON decoding returns.

    `opaque` holds the paths of opaque arguments. An ignored one makes no difference, and is left
    out.
    """

    def __init__(self, ignore: frozenset[str], max_depth: int, max_size: int) -> None:
        self.opaque: list[str] = []
        self._ignore = ignore
        self._max_depth = max_depth
        self._max_size = max_size
        self._room = max_size

    def convert(self, value: Any, depth: int = 1, path: str = "") -> Any:
        """Return a value in plain types. Raises `NotJsonError`, and `RecursionError`."""
        self._room -= 1  # each value takes a byte at least
        if self._room < 0:
            raise NotJsonError(_TOO_LARGE.format(self._max_size))
        if value.__class__ in _ATOMIC_CLASSES:
            return value
        if isinstance(value, str):
            if value.__class__ is OpaqueText and not self._ignores(path):
                self.opaque.append(_quote_path(path))
            return str.__str__(value)  # an enum's own `str` is its name
        from numbers import Integral, Real  # imported only for arguments that are not plain

        if isinstance(value, Integral):
            return int(value)
        if isinstance(value, Real):
            try:
                return float(value)
            except OverflowError:
                raise NotJsonError(f"{_quote_path(path)} is too large for JSON") from None
        if depth > self._max_depth:
            raise NotJsonError(f"they are nested deeper than {self._max_depth} levels")
        if isinstance(value, Mapping):
            result = {}
            for name, item in value.items():
                if not isinstance(name, str):
                    raise NotJsonError(f"a key is a Python `{type(name).__name__}`, not a string")
                inner = f"{path}.{name}" if path else name
                if name.__class__ is OpaqueText and not self._ignores(path):
                    self.opaque.append(_quote_path(path))
                result[str.__str__(name)] = self.convert(item, depth + 1, inner)
            return result
        if isinstance(value, (list, tuple)):
            return [self.convert(item, depth + 1, path) for item in value]
        raise NotJsonError(f"{_quote_path(path)} is a Python `{type(value).__name__}`, not JSON")

    def _ignores(self, path: str) -> bool:
        """Whether an argument, or one around it, is among the ignored ones."""
        names = path.split(".")
        return any(
            name in self._ignore or ".".join(names[:count]) in self._ignore
            for count, name in enumerate(names, 1)
        )


def _keyed_hash(key: bytes, kind: bytes) -> hashlib.blake2b:
    """Return a keyed hash, a different one for each `kind`.

    The key goes into BLAKE2's salt and person. Its own keyed mode prepends a block, which CPython
    hashes again for each copy. See docs/decisions/0022.
    """
    derived = hashlib.blake2b(kind, digest_size=32, key=key).digest()
    return hashlib.blake2b(digest_size=_DIGEST_SIZE, salt=derived[:16], person=derived[16:])


def _key_suffixes(names: Iterable[str]) -> Iterator[str]:
    """Yield what a key of an object may be for its path to be one of `names`: `a.b` and `b`."""
    for name in names:
        parts = name.split(".")
        for count in range(len(parts)):
            yield ".".join(parts[count:])


def _quote_path(path: str) -> str:
    """Quote a path for a message; never a part of a name, which may be a secret."""
    return f"`{path}`" if 0 < len(path) <= _MAX_SHOWN_PATH_LENGTH else "a value"


def _fold_text(value: Any) -> Any:
    """Normalize case and white space of texts, also in lists; return other values unchanged."""
    if value.__class__ is list:
        return [_fold_text(item) for item in value]
    return " ".join(value.casefold().split()) if value.__class__ is str else value


def _is_tolerable(value: Any) -> bool:
    return value.__class__ is float or (value.__class__ is int and abs(value) < _MAX_TOLERANT_INT)


def _encode_ascii_json(value: Any) -> bytes:
    import json  # slow import

    try:
        return json.dumps(value, sort_keys=True, allow_nan=False).encode()
    except ValueError:  # CPython limits integers to 4,300 digits
        raise NotJsonError("an integer has too many digits") from None


def result_text(result: Any) -> str:
    """Convert a tool's result to text: text unchanged, None as "", anything else as JSON."""
    if result is None:
        return ""
    if isinstance(result, str):
        return str.__str__(result)
    if isinstance(result, (bytes, bytearray)):
        return bytes(result).decode("utf-8", "replace")
    try:
        return msgspec.json.encode(result, enc_hook=safe_str).decode()
    except (ValueError, TypeError, OverflowError, RecursionError, UnicodeError):
        return safe_str(result)


def safe_str(value: object) -> str:
    """Convert any object to text; fall back to the name of its type."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - whatever it raises; a cycle or depth a RecursionError
        return f"<{type(value).__name__}>"
