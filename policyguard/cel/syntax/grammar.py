"""The parser of CEL: cel-python's grammar, read by lark. The only module that imports `lark`.

cel-python itself is not imported, which takes as long as importing lark twice. lark takes 0.3 s to
compute its table from the grammar, and 10 ms to read one that a `TableCache` kept.

A table is plain data. It is not trusted to be one: whatever it contains, lark creates no objects of
it but rules, terminals and patterns, and it decides only how texts become trees.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from lark import Lark

GRAMMAR_PACKAGE: Final = "celpy"
_MAX_INT: Final = 2**63 - 1


class TableCache(Protocol):
    """A place for one table. It has no table of another grammar or version of lark."""

    def read(self) -> bytes | None:
        """Return the table that was written."""
        ...

    def write(self, data: bytes) -> None:
        """Keep a table if possible."""
        ...


def load_parser(cache: TableCache | None) -> Lark:
    """Return a parser, by a cached table if there is one."""
    data = cache.read() if cache is not None else None
    parser = _read_table(data) if data is not None else None
    if parser is None:
        parser = _build_parser()
        if cache is not None:
            cache.write(_write_table(parser))
    return parser


def _build_parser() -> Lark:
    from lark import Lark  # 45 ms, only for runs that parse an expression

    spec = find_spec(GRAMMAR_PACKAGE)
    assert spec is not None and spec.origin is not None  # noqa: S101, PT018 - a dependency
    path = os.path.join(os.path.dirname(spec.origin), "cel.lark")  # noqa: PTH118, PTH120
    grammar: bytes = spec.loader.get_data(path)  # type: ignore[union-attr]  # also of an archive
    return Lark(
        grammar.decode(),
        parser="lalr",
        start="expr",
        g_regex_flags=re.MULTILINE,
        propagate_positions=True,
        maybe_placeholders=False,
        priority="invert",
    )


def _write_table(parser: Lark) -> bytes:
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    return msgspec.msgpack.encode(_to_plain(parser.memo_serialize([TerminalDef, Rule])))


def _read_table(data: bytes) -> Lark | None:
    """Return the parser of a table; None if it is none."""
    from lark import Lark

    try:
        table, memo = msgspec.msgpack.decode(data, strict=False)
        # `Lark.load` would unpickle, which runs what it reads.
        parser: Lark = Lark._load_from_dict(  # type: ignore[no-untyped-call]
            table, memo, transformer=None, postlex=None, lexer_callbacks={}
        )
    except Exception:  # noqa: BLE001 - a damaged table may fail anywhere
        return None
    return parser


def _to_plain(value: Any) -> Any:
    """Return what lark writes as what MessagePack has: widths without end are the widest."""
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    return min(int(value), _MAX_INT) if isinstance(value, int) and value > 1 else value
