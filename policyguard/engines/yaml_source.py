"""YAML text to a located tree. The only module that imports `yaml`.

Only the parser's events are used. Surprises of the library, handled here:

- The loader silently keeps the last of two equal keys; here a duplicate is an error.
- It reads YAML 1.1: `on` and `no` are booleans, even as keys. `yaml_scalars` reads scalars instead.
- It composes documents recursively: 200,000 brackets end the process. Events do not recurse, and
  depth is limited here.
- Aliases make cycles, and documents that grow exponentially. Their expanded size is counted.
- Its block collections end where the next token begins; here they end with their last child. The
  mark of a block scalar is at its `|`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import yaml

from policyguard.engines import yaml_scalars
from policyguard.engines.source import SourceText, decode_source
from policyguard.engines.yaml_tree import (
    MappingNode,
    Node,
    ParsedDocument,
    ScalarNode,
    SequenceNode,
)
from policyguard.model.diagnostic import Diagnostic, Span, quote_text
from policyguard.model.policy import Value

MAX_DEPTH = 64
"""Nesting levels of collections."""

MAX_NODES = 100_000
"""Nodes of a document, with aliases expanded."""

# libyaml's parser if installed; the pure Python one reports the same events.
_Parser: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s+|\#[^\n]*\n)*)*")
_THOUSANDS = re.compile(r"(?<![\w.])[0-9]{1,3}(?:,[0-9]{3})+(?![\w.])")
_MAX_NUMBER = 40
"""How far from a group of digits the rest of its number is looked for, in characters."""
_FLOW_VALUE = re.compile(r"\w: +([\[{])[^\[\]{}]*[\]}]\Z")
"""A value in brackets, behind which a line goes on."""
_INDICATORS = "@`%*&!|>"
"""Characters that cannot begin a plain scalar, though names may begin with them."""
_SYNTAX_HINTS = {
    "mapping values are not allowed": "quote a text that contains `: `",
    "did not find expected key": "indent it like the keys before it",
    "did not find expected node content": "write the value, or close the bracket before it",
    "did not find expected ',' or ']'": (
        "close the `[`, put a `,` between its items, or quote a text that contains `: `"
    ),
    "did not find expected ',' or '}'": "close the `{`, or put a `,` between its keys",
    "while scanning an alias": "quote names that begin with `*`",
    "while scanning a tag": "quote a text that begins with `!`",
    "unknown escape character": "write `\\\\` for a backslash, or put `'` around the text",
    "could not find expected ':'": "add the `:` of a key, or quote a text of several lines",
}


def parse(data: bytes | str, file: str, *, empty_hint: str | None = None) -> ParsedDocument:
    """Parse one YAML document.

    `file` is the name in diagnostics, `empty_hint` says how to begin a file that is empty.

    Never raises. Syntax errors, excessive size or depth, and several documents end the parsing; it
    continues after anything else (a duplicate key, a tag, a key that is not a string).
    """
    source, diagnostics = decode_source(data, file)
    if diagnostics:
        return ParsedDocument(source, None, diagnostics)
    builder = _TreeBuilder(source, empty_hint)
    try:
        root = builder.build()
    except _ParsingStopped as stop:
        return ParsedDocument(source, None, [*builder.diagnostics, stop.diagnostic])
    except yaml.YAMLError as error:
        return ParsedDocument(
            source, None, [*builder.diagnostics, _syntax_diagnostic(source, error)]
        )
    return ParsedDocument(source, root, builder.diagnostics)


class _ParsingStopped(Exception):  # noqa: N818 - leaves the loop over events
    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic


class _AnchoredNode(NamedTuple):
    node: Node
    size: int
    height: int


class _OpenCollection:
    """A collection whose end has not been reached. In a mapping, `children` alternate."""

    def __init__(self, event: yaml.CollectionStartEvent, start: int) -> None:
        self.mapping = isinstance(event, yaml.MappingStartEvent)
        self.flow = bool(event.flow_style)
        self.anchor: str | None = event.anchor
        self.start = start
        self.children: list[Node] = []
        self.end = start
        self.size = 1
        self.height = 1

    def add(self, found: _AnchoredNode, end: int) -> None:
        """Add a child that ends at offset `end`; for an alias that is the end of the alias."""
        self.children.append(found.node)
        self.end = end
        self.size += found.size
        self.height = max(self.height, found.height + 1)


class _TreeBuilder:
    def __init__(self, source: SourceText, empty_hint: str | None) -> None:
        self._source = source
        self._empty_hint = empty_hint
        self._open: list[_OpenCollection] = []
        self._anchors: dict[str, _AnchoredNode | None] = {}
        self._node_count = 0
        self.diagnostics: list[Diagnostic] = []

    def build(self) -> Node | None:
        parser = _Parser(self._source.text)
        try:
            root: Node | None = None
            while parser.check_event():
                event = parser.get_event()
                if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                    self._stop(
                        "yaml/several-documents",
                        "a second document begins here",
                        event,
                        hint="a file is one document; remove the `---`",
                    )
                root = self._handle_event(event) or root
        finally:
            parser.dispose()
        if root is None:
            span = self._source.span(0, 0)
            self._report("yaml/empty", "the file is empty", span, self._empty_hint)
        return root

    def _handle_event(self, event: yaml.Event) -> Node | None:
        """Add the node of an event; return it if it completes the document."""
        if isinstance(event, yaml.CollectionStartEvent):
            self._refuse_tag(event)
            if len(self._open) >= MAX_DEPTH:
                self._stop_too_deep(event)
            if event.anchor:
                self._anchors[event.anchor] = None
            self._open.append(_OpenCollection(event, self._content_start(event)))
            return None
        if isinstance(event, yaml.CollectionEndEvent):
            closed = self._open.pop()
            node = self._close_collection(closed, event)
            anchored = _AnchoredNode(node, closed.size, closed.height)
            anchor = closed.anchor
        elif isinstance(event, yaml.AliasEvent):
            anchored, anchor = self._alias(event), None
        elif isinstance(event, yaml.ScalarEvent):
            anchored, anchor = _AnchoredNode(self._scalar(event), 1, 0), event.anchor
        else:
            return None
        if anchor:
            self._anchors[anchor] = anchored
        self._node_count += 1 if not isinstance(event, yaml.AliasEvent) else anchored.size
        if self._node_count > MAX_NODES:
            self._stop("yaml/too-large", f"the document has more than {MAX_NODES:,} values", event)
        if not self._open:
            return anchored.node
        is_alias = isinstance(event, yaml.AliasEvent)
        self._open[-1].add(anchored, _offsets(event)[1] if is_alias else anchored.node.end)
        return None

    def _alias(self, event: yaml.AliasEvent) -> _AnchoredNode:
        name = event.anchor
        span = _span(self._source, event)
        if name not in self._anchors:
            message = f"unknown anchor: no `&` before this defines {quote_text(f'*{name}')}"
            hint = f"if it is a name, quote it: {_quote_yaml(f'*{name}')}"
            self._report("yaml/unknown-anchor", message, span, hint=hint)
            return _AnchoredNode(self._placeholder(event), 1, 0)
        anchored = self._anchors[name]
        if anchored is None:
            message = f"{quote_text(f'*{name}')} is inside its own anchor {quote_text(f'&{name}')}"
            self._report("yaml/alias-cycle", message, span)
            return _AnchoredNode(self._placeholder(event), 1, 0)
        if len(self._open) + anchored.height > MAX_DEPTH:
            self._stop_too_deep(event)
        return anchored

    def _placeholder(self, event: yaml.NodeEvent) -> ScalarNode:
        start, end = _offsets(event)
        text = self._source.text[start:end]
        return ScalarNode(self._source, start, end, "", text, text)

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        self._refuse_tag(event)
        start, end = self._content_start(event), _offsets(event)[1]
        style = event.style or ""
        if style in ("|", ">"):
            end = start + len(self._source.text[start:end].rstrip())
        text: str = event.value
        value = self._value(event, text)
        return ScalarNode(self._source, start, max(start, end), style, text, value)

    def _value(self, event: yaml.ScalarEvent, text: str) -> Value | None:
        if event.style or event.tag:
            return text
        try:
            return yaml_scalars.resolve_scalar(text)
        except yaml_scalars.NumberError as error:
            quote = f"if it is text, quote it: {_quote_yaml(text)}"
            hint = self._suggest_no_comma(_offsets(event)[0], text) or quote
            span = _span(self._source, event)
            self._report("yaml/number", f"{quote_text(text)} {error}", span, hint=hint)
            return text

    def _suggest_no_comma(self, start: int, text: str) -> str | None:
        """Return help if a number, or the `text` at `start`, is written as in `1,000,000`."""
        first, last = max(0, start - _MAX_NUMBER), start + len(text) + _MAX_NUMBER
        for found in _THOUSANDS.finditer(self._source.text, first, last):
            if found.start() < start < found.end():
                number = found[0].replace(",", "")
                return f"`,` separates items in brackets; write `{number}`"
        return None

    def _close_collection(self, closed: _OpenCollection, event: yaml.CollectionEndEvent) -> Node:
        end = _offsets(event)[1] if closed.flow else closed.end
        if not closed.mapping:
            return SequenceNode(self._source, closed.start, end, tuple(closed.children))
        entries: dict[str, tuple[ScalarNode, Node]] = {}
        for key, value in zip(closed.children[::2], closed.children[1::2], strict=True):
            if not isinstance(key, ScalarNode):
                self._report("yaml/key", "a key must be text, not a list or a map", key.span)
            elif key.text in entries:
                message = f"duplicate key {quote_text(key.text)}"
                first = f"the first one is in line {entries[key.text][0].span.line}"
                hint = self._suggest_no_comma(key.start, key.text) or first
                self._report("yaml/duplicate-key", message, key.span, hint=hint)
            else:
                self._check_key(key)
                entries[key.text] = (key, value)
        return MappingNode(self._source, closed.start, end, tuple(entries.values()))

    def _check_key(self, key: ScalarNode) -> None:
        if not isinstance(key.value, str):
            message = f"the key {quote_text(key.text)} is not text"
            quote = f"quote it: {_quote_yaml(key.text)}"
            hint = self._suggest_no_comma(key.start, key.text) or quote
            self._report("yaml/key", message, key.span, hint=hint)
        elif key.text == "<<" and not key.style:
            hint = "use `extends`, or an alias as the whole value"
            self._report("yaml/merge-key", "YAML 1.2 has no merge key `<<`", key.span, hint=hint)

    def _refuse_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag:
            message = f"the tag {quote_text(event.tag)} is not supported"
            span = _span(self._source, event, first_line=True)
            hint = 'to make a value text, quote it: `"5"`'
            if not event.tag.startswith("tag:") and event.tag[1:2] not in ("", "!"):
                hint = 'a value that begins with `!` must be quoted: `"!…"`'
            self._report("yaml/tag", message, span, hint=hint)

    def _content_start(self, event: yaml.NodeEvent) -> int:
        """Return where the node itself begins, after its anchor and tag."""
        start, _ = _offsets(event)
        has_properties = event.anchor or getattr(event, "tag", None)
        match = _PROPERTIES.match(self._source.text, start) if has_properties else None
        return match.end() if match else start

    def _report(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self.diagnostics.append(self._source.diagnostic(code, message, span, hint=hint))

    def _stop(self, code: str, message: str, event: yaml.Event, hint: str | None = None) -> None:
        span = _span(self._source, event)
        raise _ParsingStopped(self._source.diagnostic(code, message, span, hint=hint))

    def _stop_too_deep(self, event: yaml.Event) -> None:
        raise _ParsingStopped(_too_deep(self._source, _span(self._source, event)))


def _quote_yaml(text: str) -> str:
    return quote_text(f'"{text}"')


def _offsets(event: yaml.Event) -> tuple[int, int]:
    start, end = event.start_mark, event.end_mark
    return (start.index if start else 0), (end.index if end else 0)


def _span(source: SourceText, event: yaml.Event, *, first_line: bool = False) -> Span:
    start, end = _offsets(event)
    if first_line:
        line_end = source.text.find("\n", start)
        end = min(end, line_end if line_end >= 0 else end)
    return source.span(start, max(start, end))


def _syntax_diagnostic(source: SourceText, error: yaml.YAMLError) -> Diagnostic:
    problem = getattr(error, "problem", None) or "cannot be read as YAML"
    context = getattr(error, "context", None) or ""
    mark = getattr(error, "problem_mark", None)
    if mark is None or "end of stream" in problem:
        # Point at what was never closed, not at the end of the file.
        mark = getattr(error, "context_mark", None) or mark
    offset = min(mark.index if mark else 0, len(source.text))
    character = source.text[offset : offset + 1]
    message = " ".join(f"{problem} {context}".split())
    span = source.span(offset, min(offset + 1, len(source.text)))
    if "maximum nesting depth" in message:  # libyaml 0.2.6 looks ahead, and has a limit of its own
        return _too_deep(source, span)
    hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in message), None)
    before = source.text[source.text.rfind("\n", 0, offset) + 1 : offset].rstrip()
    if before[-1:] in ("'", '"') and character.isalpha():
        other = "'" if before[-1] == '"' else '"'
        hint = f"a value that begins with a quote ends at the next: put {other} around all of it"
    elif before[-1:] in ("]", "}") and (opened := _FLOW_VALUE.search(before)):
        hint = f"quote a text that begins with `{opened[1]}`"
    elif before[-1:] == "$" and character == "{":
        hint = "for a variable of the environment, write a param: `{default: …, env: NAME}`"
    elif character == "\t":
        hint = "indent with spaces"
    elif character and character in _INDICATORS:
        hint = f"quote names that begin with `{character}`"
    return source.diagnostic("yaml/syntax", message, span, hint=hint)


def _too_deep(source: SourceText, span: Span) -> Diagnostic:
    return source.diagnostic("yaml/too-deep", f"nested deeper than {MAX_DEPTH} levels", span)
