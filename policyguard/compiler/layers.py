"""The layers of a policy laid over one another, where every value still knows its file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping as Environ
from dataclasses import dataclass

from policyguard.compiler.entries import disable, duplicates, names
from policyguard.compiler.inputs import File
from policyguard.compiler.load import Layer, Loaded
from policyguard.compiler.merge import merge
from policyguard.compiler.validate import place, validate
from policyguard.engines.source import Source
from policyguard.engines.yaml_tree import Mapping, Node, Path, Scalar, descend
from policyguard.model.diagnostic import Diagnostic, Severity, Span


@dataclass(frozen=True)
class Layered:
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
    tree: Mapping
    broken: frozenset[tuple[str, str]]
    complete: bool
    top: Mapping
    inherited: Mapping
    files: tuple[File, ...]

    def lost(self, section: str) -> set[str]:
        """Names of a section that the author has defined, and that broke."""
        return {name for part, name in self.broken if part == section}

    def node(self, path: Path) -> Node:
        """The value at `path`, or the nearest around it."""
        return descend(self.tree, path)[0]

    def has(self, path: Path) -> bool:
        """Whether the policy gives a value at `path` itself."""
        return not descend(self.tree, path)[1]

    def where(self, path: Path, *, key: bool = False) -> Span:
        """Where the value at `path` stands (of a list or map, its first line), or its key."""
        return place(self.tree, path, key=key)

    def inside(self, path: Path, line: int, column: int, end_line: int, end_column: int) -> Span:
        """Where a stretch of the text at `path` stands in its file.

        Lines and columns count from 1 in the text, as CEL and RE2 are given it; the end is
        exclusive.
        """
        node = self.node(path)
        if isinstance(node, Scalar):
            return node.inside(line, column, end_line, end_column)
        return self.where(path)

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


def layered(loaded: Loaded) -> tuple[Layered, list[Diagnostic]]:
    """Check each layer against the schema and lay them over one another.

    The tree is empty where no layer has anything to go on with.
    """
    diagnostics: list[Diagnostic] = []
    tree = top = base = Mapping(Source("", ""), 0, 0, ())
    broken: set[tuple[str, str]] = set()
    complete = loaded.complete
    for layer in loaded.layers:
        checked = validate(layer.root, loaded.diagnostics)
        diagnostics += checked.diagnostics
        if checked.tree is None:
            complete = False
            continue
        top = checked.tree
        base, found = disable(tree, top, broken)
        broken |= {
            (str(path[0]), path[1])
            for path in checked.cut
            if len(path) > 1 and isinstance(path[1], str)
        }
        broken |= names(layer.root) - names(checked.tree)
        diagnostics += duplicates(checked.tree)
        tree, changed = merge(base, checked.tree)
        diagnostics += [*found, *changed] if complete else changed
    sources = {layer.source.file: layer.source for layer in loaded.layers}
    files = tuple(loaded.files)
    return Layered(sources, tree, frozenset(broken), complete, top, base, files), diagnostics


def digest(layers: list[Layer], environ: Environ[str, str]) -> str:
    """The SHA-256, in hex, of the layers' text and the environment's values that went in."""
    sha = hashlib.sha256()
    texts = [layer.source.text for layer in layers]
    for text in (*texts, *(f"{name}={value}" for name, value in sorted(environ.items()))):
        data = text.encode()
        sha.update(len(data).to_bytes(8, "big"))
        sha.update(data)
    return sha.hexdigest()
