"""Importers that turn recorded runs into events; `docs/trace-formats.md` describes each format."""

from policyguard.traces.input_paths import expand, is_input_file
from policyguard.traces.item import Item, Skipped, TraceError
from policyguard.traces.reader import Reader, TraceFile

__all__ = ["Item", "Reader", "Skipped", "TraceError", "TraceFile", "expand", "is_input_file"]
