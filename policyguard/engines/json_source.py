"""JSON text to a located tree, as `yaml_source` makes one of YAML.

YAML's parser is no substitute: it refuses the pairs of escapes that JSON writes rare letters with.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple, NoReturn

from policyguard.engines.source import Source, read
from policyguard.engines.yaml_source import DEEPEST, LARGEST
from policyguard.engines.yaml_tree import Mapping, Node, Scalar, Sequence
from policyguard.model.diagnostic import Diagnostic, Span, quoted

_TOKEN = re.compile(r'[\s,:]*(?:(?P<open>[\[{])|(?P<close>[\]}])|(?P<scalar>["\w-]))')
_scalar = json.JSONDecoder().raw_decode


class Parsed(NamedTuple):
    """A file's tree, or None where there is none to go on with; what was found; and the text."""

    source: Source
    root: Node | None
    diagnostics: list[Diagnostic]


def parse(data: bytes | str, file: str) -> Parsed:
    """Parse one JSON document. `file` is the name that diagnostics show. Never raises.

    After a key that stands twice it goes on; anything else that is wrong ends the parsing.
    """
    source, diagnostics = read(data, file)
    if diagnostics:
        return Parsed(source, None, diagnostics)
    wrong = _refused(source)
    if wrong is not None:
        return Parsed(source, None, [wrong])
    return _built(source)


def _refused(source: Source) -> Diagnostic | None:
    """Why the text is no JSON."""
    try:
        json.loads(source.text, parse_constant=_no_number)
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


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it has no {quoted(name)}")


def _too_deep(source: Source, span: Span) -> Diagnostic:
    return source.diagnostic("json/too-deep", f"nested more than {DEEPEST} deep", span)


class _Open:
    """A collection whose end has not been seen. For a mapping, `children` alternate."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.children: list[Node] = []


def _built(source: Source) -> Parsed:
    """The tree of a text that is known to be JSON, for all its values one by one."""
    found: list[Diagnostic] = []
    waiting = [_Open(0)]
    position = values = 0
    while (token := _TOKEN.match(source.text, position)) is not None:
        position = token.end()
        values += 1
        if token["open"]:
            waiting.append(_Open(token.start("open")))
            if len(waiting) > DEEPEST + 1:
                span = source.span(position - 1, position)
                return Parsed(source, None, [_too_deep(source, span)])
            continue
        if token["close"]:
            node = _closed(source, waiting.pop(), position, found)
        else:
            start = position - 1
            value, position = _scalar(source.text, start)
            style = '"' if isinstance(value, str) else ""
            text = value if style else source.text[start:position]
            node = Scalar(source, start, position, style, text, value)
        waiting[-1].children.append(node)
        if values > LARGEST:
            message = f"the document has more than {LARGEST:,} values here"
            return Parsed(source, None, [source.diagnostic("json/too-large", message, node.span)])
    return Parsed(source, waiting[0].children[0], found)


def _closed(source: Source, done: _Open, end: int, found: list[Diagnostic]) -> Node:
    if source.text[end - 1] == "]":
        return Sequence(source, done.start, end, tuple(done.children))
    entries: dict[str, tuple[Scalar, Node]] = {}
    for key, value in zip(done.children[::2], done.children[1::2], strict=True):
        if isinstance(key, Scalar):
            if key.text in entries:
                message = f"the key {quoted(key.text)} stands here a second time"
                found.append(source.diagnostic("json/duplicate-key", message, key.span))
            entries[key.text] = (key, value)
    return Mapping(source, done.start, end, tuple(entries.values()))
