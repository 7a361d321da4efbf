"""Policies that are read, but not compiled."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from policyguard.compiler.load.loader import LoadedLayers, load_layers, load_tree
from policyguard.compiler.pipeline import FrontendResult, read_layers
from policyguard.engines.yaml_source import parse

NO_ENVIRON: Mapping[str, str] = MappingProxyType({})


def load_text(text: str | bytes, file: str = "<policy>") -> LoadedLayers:
    _, root, diagnostics = parse(text, file)
    if root is None:
        return LoadedLayers([], diagnostics, False, [])
    loaded = load_tree(root)
    return loaded._replace(diagnostics=[*diagnostics, *loaded.diagnostics])


def read_text(
    text: str | bytes, file: str = "<policy>", environ: Mapping[str, str] = NO_ENVIRON
) -> FrontendResult:
    return read_layers(load_text(text, file), environ)


def read_files(*names: object, environ: Mapping[str, str] = NO_ENVIRON) -> FrontendResult:
    return read_layers(load_layers(names), environ)
