"""Recorded runs of agents → events. `docs/trace-formats.md` says what is read from what."""

from policyguard.traces.item import Item, Skipped, TraceError
from policyguard.traces.paths import among, expand
from policyguard.traces.reader import Reader, TraceFile

__all__ = ["Item", "Reader", "Skipped", "TraceError", "TraceFile", "among", "expand"]
