"""Command texts to the simple commands in them."""

from __future__ import annotations

import threading
from collections import OrderedDict

from policyguard.shell.command_line import CommandLine
from policyguard.shell.facts import ShellFacts
from policyguard.shell.lookup import Lookup
from policyguard.shell.statements import Statements


class ShellReader:
    """Reads command texts by the data of one policy, and keeps the latest readings.

    Safe to share between threads.
    """

    def __init__(self, facts: ShellFacts) -> None:
        self.facts = facts
        self.wrappers = Lookup(facts.wrappers, facts.limits.texts)
        self.code = Lookup(facts.code, facts.limits.texts)
        self.programs = Lookup(facts.programs, facts.limits.texts)
        self._kept: OrderedDict[str, CommandLine] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, text: str) -> CommandLine:
        """Return what `text` runs. It never raises: what cannot be read is opaque."""
        with self._lock:
            line = self._kept.get(text)
            if line is not None:
                self._kept.move_to_end(text)
                return line
        line = self._read(text)
        if len(text) <= self.facts.limits.chars:
            with self._lock:
                self._kept[text] = line
                if len(self._kept) > self.facts.limits.texts:
                    self._kept.popitem(last=False)
        return line

    def _read(self, text: str) -> CommandLine:
        statements = Statements(self)
        statements.read_text(text)
        return statements.finish()
