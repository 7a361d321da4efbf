"""The supported formats, in order of detection."""

from __future__ import annotations

from policyguard.traces.formats import (
    claude_code,
    copilot_cli,
    gemini_cli,
    intercode,
    langfuse,
    mini_swe_agent,
    native,
    tau2,
)
from policyguard.traces.formats.atif import atif
from policyguard.traces.formats.chat_completions import chat_completions
from policyguard.traces.formats.codex import codex
from policyguard.traces.formats.inspect_ai import inspect_ai
from policyguard.traces.formats.openclaw import openclaw
from policyguard.traces.formats.openhands import openhands
from policyguard.traces.formats.otel import otel
from policyguard.traces.formats.swe_agent import swe_agent
from policyguard.traces.importer import Importer

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
