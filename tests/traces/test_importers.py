"""The list of importers is complete, and each format is documented."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

from policyguard.traces import formats
from policyguard.traces.containers.content import PlainFile
from policyguard.traces.containers.source import Source
from policyguard.traces.formats import chat_completions
from policyguard.traces.importers import IMPORTERS
from policyguard.traces.item import UnreadableError

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "trace-formats.md"
CASES = sorted(path for path in (HERE / "cases").rglob("input/**/*") if path.is_file())


def test_all_formats_are_listed() -> None:
    walk = pkgutil.walk_packages(formats.__path__, f"{formats.__name__}.")
    modules = [importlib.import_module(module.name) for module in walk]
    importers = [module for module in modules if hasattr(module, "FORMAT")]
    assert set(map(id, importers)) == set(map(id, IMPORTERS))


def test_format_names_are_unique() -> None:
    formats = [importer.FORMAT for importer in IMPORTERS]
    assert len(set(formats)) == len(formats)


def test_formats_are_documented() -> None:
    headings = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("## ")]
    for importer in IMPORTERS:
        assert any(f"`{importer.FORMAT}`" in heading for heading in headings), importer.FORMAT


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_only_the_last_importer_overlaps_with_others(path: Path) -> None:
    try:
        sample = Source(PlainFile(path)).sample
    except UnreadableError:
        return
    found = [importer.FORMAT for importer in IMPORTERS[:-1] if importer.detect(sample)]
    assert len(found) <= 1
    assert IMPORTERS[-1] is chat_completions
