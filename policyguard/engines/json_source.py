"""JSON text to the same located tree that `yaml_source` builds.

YAML's parser is no substitute: it rejects the surrogate pairs that JSON escapes rare letters with.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple, NoReturn

from policyguard.engines.source import Source, decode_source
from policyguard.engines.yaml_source import MAX_DEPTH, MAX_NODES
from policyguard.engines.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from policyguard.model.diagnostic import Diagnostic, Span, quote_text

_TOKEN = re.compile(r'[\s,:]*(?:(?P<open>[\[{])|(?P<close>[\]}])|(?P<scalar>["\w-]))')
_decode_scalar = json.JSONDecoder().raw_decode


class ParsedJson(NamedTuple):
    """A file's tree, or None where there is none to go on with; what was found; and the text."""

    source: Source
    root: Node | None
    diagnostics: list[Diagnostic]


def parse(data: bytes | str, file: str) -> ParsedJson:
    """Parse one JSON document. `file` is the name in diagnostics. Never raises.

    Parsing continues after a duplicate key; any other problem ends it.
    """
    source, diagnostics = decode_source(data, file)
    if diagnostics:
        return ParsedJson(source, None, diagnostics)
    wrong = _find_syntax_error(source)
    if wrong is not None:
        return ParsedJson(source, None, [wrong])
    return _build_tree(source)


def _find_syntax_error(source: Source) -> Diagnostic | None:
    """Return the diagnostic of a text that is not JSON, or None."""
    try:
        json.loads(source.text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        said = error.msg.removesuffix(" at").removesuffix(" starting")
        place = min(error.pos, len(source.text))
        span = source.span(place, min(place + 1, len(source.text)))
        message = f"this is not JSON: {said[:1].lower()}{said[1:]}"
        return source.diagnostic("json/syntax", message, span)
    except RecursionError:
        return _too_deep(source, source.span(0, 0))
    except ValueError as error:  # also a number of thousands of digits
        said = str(error).partition(":")[0]
        message = f"this is not JSON: {said[:1].lower()}{said[1:]}"
        return source.diagnostic("json/syntax", message, source.span(0, 0))
    return None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"it has no {quote_text(name)}")


def _too_deep(source: Source, span: Span) -> Diagnostic:
    return source.diagnostic("json/too-deep", f"nested more than {MAX_DEPTH} deep", span)


class _OpenCollection:
    """A collection whose end has not been reached. In a mapping, `children` alternate."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.children: list[Node] = []


def _build_tree(source: Source) -> ParsedJson:
    """Build the tree of a text that is known to be JSON."""
    found: list[Diagnostic] = []
    waiting = [_OpenCollection(0)]
    position = values = 0
    while (token := _TOKEN.match(source.text, position)) is not None:
        position = token.end()
        values += 1
        if token["open"]:
            waiting.append(_OpenCollection(token.start("open")))
            if len(waiting) > MAX_DEPTH + 1:
                span = source.span(position - 1, position)
                return ParsedJson(source, None, [_too_deep(source, span)])
            continue
        if token["close"]:
            node = _close_collection(source, waiting.pop(), position, found)
        else:
            start = position - 1
            value, position = _decode_scalar(source.text, start)
            style = '"' if isinstance(value, str) else ""
            text = value if style else source.text[start:position]
            node = ScalarNode(source, start, position, style, text, value)
        waiting[-1].children.append(node)
        if values > MAX_NODES:
            message = f"the document has more than {MAX_NODES:,} values here"
            return ParsedJson(
                source, None, [source.diagnostic("json/too-large", message, node.span)]
            )
    return ParsedJson(source, waiting[0].children[0], found)


def _close_collection(
    source: Source, done: _OpenCollection, end: int, found: list[Diagnostic]
) -> Node:
    if source.text[end - 1] == "]":
        return SequenceNode(source, done.start, end, tuple(done.children))
    entries: dict[str, tuple[ScalarNode, Node]] = {}
    for key, value in zip(done.children[::2], done.children[1::2], strict=True):
        if isinstance(key, ScalarNode):
            if key.text in entries:
                message = f"the key {quote_text(key.text)} stands here a second time"
                found.append(source.diagnostic("json/duplicate-key", message, key.span))
            entries[key.text] = (key, value)
    return MappingNode(source, done.start, end, tuple(entries.values()))
