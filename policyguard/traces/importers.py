"""The importers of the supported formats, in order of detection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats import (
    atif,
    chat_completions,
    claude_code,
    copilot_cli,
    gemini_cli,
    inspect_ai,
    intercode,
    langfuse,
    mini_swe_agent,
    native,
    openclaw,
    swe_agent,
    tau2,
)
from policyguard.traces.formats.codex import codex
from policyguard.traces.formats.openhands import openhands
from policyguard.traces.formats.otel import otel
from policyguard.traces.item import Item


class Importer(Protocol):
    """An importer for one format: a module with these three names."""

    FORMAT: str
    """The format's name in reports."""

    def detect(self, sample: Sample) -> bool:
        """Return whether the sample has this format."""
        ...

    def read(self, source: Source) -> Iterator[Item]:
        """Yield the events and skipped parts of a detected file. Raise `OSError` only."""
        ...


# Chat completions come last: other formats contain message lists too, and more details.
IMPORTERS: tuple[Importer, ...] = (
    native,
    claude_code,
    codex,
    copilot_cli,
    openclaw,
    gemini_cli,
    atif,
    mini_swe_agent,
    tau2,
    swe_agent,
    openhands,
    inspect_ai,
    langfuse,
    otel,
    intercode,
    chat_completions,
)
