"""The layers of a policy laid over one another, where every value still knows its file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping as Environ
from dataclasses import dataclass

from policyguard.compiler.inputs import InputFile
from policyguard.compiler.load.layer_validation import find_span, validate_layer
from policyguard.compiler.load.loader import Layer, LoadedLayers
from policyguard.compiler.merge.disable import collect_names, find_duplicate_ids, remove_disabled
from policyguard.compiler.merge.merger import merge_layer
from policyguard.engines.source import Source
from policyguard.engines.yaml_tree import MappingNode, Node, Path, ScalarNode, descend
from policyguard.model.diagnostic import Diagnostic, Severity, Span


@dataclass(frozen=True)
class MergedPolicy:
    """All layers in one tree, and where each value of it comes from.

    A path is the way through the merged policy, such as `("rules", "no-push", "when")` or
    `("signatures", 0, "pattern")`. One that does not exist, because a default stands there,
    means the nearest value around it.

    `broken` names entries, as `("rules", "no-push")`, of which something has been cut out because
    it was wrong, or of which nothing is left: they are not to be judged as a whole, and their names
    exist. `complete` is whether every layer could be read; if not, more names may exist.

    `top` is the last layer by itself and `inherited` what it was laid over, less what it disables.
    `files` are those that were read.
    """

    sources: dict[str, Source]
    tree: MappingNode
    broken_entries: frozenset[tuple[str, str]]
    is_complete: bool
    top_layer: MappingNode
    inherited: MappingNode
    files: tuple[InputFile, ...]

    def broken_names(self, section: str) -> set[str]:
        """Names of a section that the author has defined, and that broke."""
        return {name for part, name in self.broken_entries if part == section}

    def node(self, path: Path) -> Node:
        """The value at `path`, or the nearest around it."""
        return descend(self.tree, path)[0]

    def has(self, path: Path) -> bool:
        """Whether the policy gives a value at `path` itself."""
        return not descend(self.tree, path)[1]

    def span_of(self, path: Path, *, key: bool = False) -> Span:
        """Where the value at `path` stands (of a list or map, its first line), or its key."""
        return find_span(self.tree, path, key=key)

    def span_within(
        self, path: Path, line: int, column: int, end_line: int, end_column: int
    ) -> Span:
        """Where a stretch of the text at `path` stands in its file.

        Lines and columns count from 1 in the text, as CEL and RE2 are given it; the end is
        exclusive.
        """
        node = self.node(path)
        if isinstance(node, ScalarNode):
            return node.line_span(line, column, end_line, end_column)
        return self.span_of(path)

    def origin(self, path: Path) -> str:
        """The file that the value at `path` comes from, as reports show it."""
        return self.node(path).source.file

    def lines(self, span: Span) -> tuple[str, ...]:
        """The source lines of `span`, for a diagnostic."""
        return self.diagnostic("", "", span).lines

    def diagnostic(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        hint: str | None = None,
        severity: Severity = "error",
    ) -> Diagnostic:
        """A finding at `span`, with the lines that show it."""
        source = self.sources[span.file]
        return source.diagnostic(code, message, span, hint=hint, severity=severity)


def merge_layers(loaded: LoadedLayers) -> tuple[MergedPolicy, list[Diagnostic]]:
    """Check each layer against the schema and lay them over one another.

    The tree is empty where no layer has anything to go on with.
    """
    diagnostics: list[Diagnostic] = []
    tree = top = base = MappingNode(Source("", ""), 0, 0, ())
    broken: set[tuple[str, str]] = set()
    complete = loaded.is_complete
    for layer in loaded.layers:
        checked = validate_layer(layer.root, loaded.diagnostics)
        diagnostics += checked.diagnostics
        if checked.tree is None:
            complete = False
            continue
        top = checked.tree
        base, found = remove_disabled(tree, top, broken)
        broken |= {
            (str(path[0]), path[1])
            for path in checked.removed
            if len(path) > 1 and isinstance(path[1], str)
        }
        broken |= collect_names(layer.root) - collect_names(checked.tree)
        diagnostics += find_duplicate_ids(checked.tree)
        tree, changed = merge_layer(base, checked.tree)
        diagnostics += [*found, *changed] if complete else changed
    sources = {layer.source.file: layer.source for layer in loaded.layers}
    files = tuple(loaded.files)
    return MergedPolicy(sources, tree, frozenset(broken), complete, top, base, files), diagnostics


def compute_digest(layers: list[Layer], environ: Environ[str, str]) -> str:
    """The SHA-256, in hex, of the layers' text and the environment's values that went in."""
    sha = hashlib.sha256()
    texts = [layer.source.text for layer in layers]
    for text in (*texts, *(f"{name}={value}" for name, value in sorted(environ.items()))):
        data = text.encode()
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()
