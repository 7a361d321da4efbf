"""JSON text to the same located tree that `yaml_source` builds.

YAML's parser is not a substitute: it rejects the surrogate pairs with which JSON escapes rare
letters.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from policyguard.engines.source import SourceText, decode_source
from policyguard.engines.yaml_source import MAX_DEPTH, MAX_NODES
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    ParsedDocument,
    ScalarNode,
    SequenceNode,
)
from policyguard.model.diagnostic import Diagnostic, Span, quote_text

_TOKEN = re.compile(r'[\s,:]*(?:(?P<open>[\[{])|(?P<close>[\]}])|(?P<scalar>["\w-]))')
_decode_scalar = json.JSONDecoder().raw_decode


def parse(data: bytes | str, file: str) -> ParsedDocument:
    """Parse one JSON document. `file` is the name in diagnostics. Never raises.

    Parsing continues after a duplicate key; any other problem ends it.
    """
    source, diagnostics = decode_source(data, file)
    if diagnostics:
        return ParsedDocument(source, None, diagnostics)
    error = _find_syntax_error(source)
    return _build_tree(source) if error is None else ParsedDocument(source, None, [error])


def _find_syntax_error(source: SourceText) -> Diagnostic | None:
    """Return the diagnostic of a text that is not JSON, or None."""
    try:
        json.loads(source.text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at").removesuffix(" starting")
        offset = min(error.pos, len(source.text))
        return _syntax_diagnostic(source, reason, offset, min(offset + 1, len(source.text)))
    except RecursionError:
        return _too_deep(source, source.span(0, 0))
    except ValueError as error:  # a constant, or a number of thousands of digits
        return _syntax_diagnostic(source, str(error).partition(":")[0], 0, 0)
    return None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{quote_text(name)} is not a JSON value")


def _syntax_diagnostic(source: SourceText, reason: str, start: int, end: int) -> Diagnostic:
    message = f"invalid JSON: {reason[:1].lower()}{reason[1:]}"
    return source.diagnostic("json/syntax", message, source.span(start, end))


def _too_deep(source: SourceText, span: Span) -> Diagnostic:
    return source.diagnostic("json/too-deep", f"nested deeper than {MAX_DEPTH} levels", span)


class _OpenCollection:
    """A collection whose end has not been reached. In a mapping, `children` alternate."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.children: list[Node] = []


def _build_tree(source: SourceText) -> ParsedDocument:
    """Build the tree of a text that is known to be JSON."""
    diagnostics: list[Diagnostic] = []
    open_collections = [_OpenCollection(0)]
    position = values = 0
    while (token := _TOKEN.match(source.text, position)) is not None:
        position = token.end()
        values += 1
        if token["open"]:
            open_collections.append(_OpenCollection(token.start("open")))
            if len(open_collections) > MAX_DEPTH + 1:
                span = source.span(position - 1, position)
                return ParsedDocument(source, None, [_too_deep(source, span)])
            continue
        if token["close"]:
            node = _close_collection(source, open_collections.pop(), position, diagnostics)
        else:
            start = position - 1
            value, position = _decode_scalar(source.text, start)
            style = '"' if isinstance(value, str) else ""
            text = value if style else source.text[start:position]
            node = ScalarNode(source, start, position, style, text, value)
        open_collections[-1].children.append(node)
        if values > MAX_NODES:
            message = f"the document has more than {MAX_NODES:,} values"
            too_large = source.diagnostic("json/too-large", message, node.span)
            return ParsedDocument(source, None, [too_large])
    return ParsedDocument(source, open_collections[0].children[0], diagnostics)


def _close_collection(
    source: SourceText, collection: _OpenCollection, end: int, diagnostics: list[Diagnostic]
) -> Node:
    children = collection.children
    if source.text[end - 1] == "]":
        return SequenceNode(source, collection.start, end, tuple(children))
    entries: dict[str, tuple[ScalarNode, Node]] = {}
    for key, value in zip(children[::2], children[1::2], strict=True):
        if isinstance(key, ScalarNode):
            if key.text in entries:
                message = f"duplicate key {quote_text(key.text)}"
                diagnostics.append(source.diagnostic("json/duplicate-key", message, key.span))
            entries[key.text] = (key, value)
    return MappingNode(source, collection.start, end, tuple(entries.values()))
