"""Variables that a text assigns, as far as their values are known."""

from __future__ import annotations

import re
from collections.abc import Iterable

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.command_line import ANY, GLOB, MANY
from policyguard.shell.words import BREAK, protect

_ASSIGNED = lazy_pattern(
    r"(?:(?<!\w)|(?<=\$\d))([A-Za-z_]\w*)(?:\[[^\]\n]*\])?\+?=|\b(?:for|select|read)\s+([A-Za-z_]\w*)"
)
_NUMBERS = frozenset("?#$!-0") | {"RANDOM", "LINENO", "SECONDS", "UID", "EUID", "PPID", "BASHPID"}
MOVERS = frozenset(("set", "shift", "source", "."))
"""Programs that may change `$1`, `$2` and so on."""
READERS = frozenset(("read", "mapfile", "readarray", "getopts"))
"""Programs that assign to the variables that they name."""
ASSIGNING = MOVERS | READERS | {"printf"}
"""Programs after which variables may have other values (`printf -v`)."""
_WHITE = lazy_pattern(r"[ \t\n]+")


class Variables:
    """The values that variables have where a text uses them."""

    def __init__(self, plain: frozenset[str], *, folder: str = ".") -> None:
        self._plain = plain
        self.folder = folder
        """The current folder."""
        self._values: dict[str, str] = {}
        self._expected: set[str] = set()
        self.positional: list[str] | None = None
        """`$0`, `$1` and so on, where they are known."""

    def expect(self, text: str) -> None:
        """Note the names that `text` assigns anywhere: until then their values are unknown."""
        if "=" in text or "for " in text or "read" in text or "select" in text:
            self._expected.update(match[1] or match[2] for match in _ASSIGNED.finditer(text))

    def assign(self, name: str, value: str, *, append: bool = False) -> None:
        """Give `name` a value; a second, different one makes it unknown."""
        known = self._values.get(name)
        if append and known is not None and MANY not in known:
            value = known + value
        elif append or (known is not None and known != value):
            value = MANY
        self._values[name] = value if len(value) <= 4096 else MANY

    def keep(self) -> dict[str, str]:
        """Return the values, for `restore` after what has variables of its own."""
        return dict(self._values)

    def restore(self, values: dict[str, str]) -> None:
        """Give all variables the values that they had."""
        self._values = values

    def replace(self, name: str, value: str) -> None:
        """Give `name` a value whatever it was before."""
        self._values[name] = value

    def forget(self, names: Iterable[str]) -> None:
        """Make the values of these variables unknown."""
        self._values.update((name, MANY) for name in names)

    def assign_one_of(self, name: str, values: list[str]) -> None:
        """Give `name` the values of a loop, one after the other."""
        if len(values) == 1:
            self.assign(name, values[0])
        elif values and not any(word[:1] in ("-", MANY, "") for word in values):
            self.assign(name, ANY)
        else:
            self.assign(name, MANY)

    def read(self, name: str, *, quoted: bool) -> str:
        """Return what `$name` stands for, as a part of a word."""
        if name == "_":
            return ANY if quoted else MANY
        value = self._values.get(name)
        if value is None and self.positional is not None and (name.isdigit() or name in "@*"):
            return self._read_positional(name, self.positional, quoted=quoted)
        if value is None:
            return self._read_unassigned(name, quoted=quoted)
        return self._expand(value, quoted=quoted)

    def _expand(self, value: str, *, quoted: bool) -> str:
        """Return a value as a part of a word; without quotes it may be several words."""
        if quoted:
            return protect(value.replace(GLOB, "*"))
        if "IFS" in self._expected and not value.isalnum():
            return MANY
        value = re.sub(r"[*?]", GLOB, value)
        return _WHITE.sub(BREAK, protect(value))

    def _read_positional(self, name: str, values: list[str], *, quoted: bool) -> str:
        if name == "*" and quoted and ("IFS" in self._expected or "IFS" in self._values):
            return MANY
        chosen = values[1:] if name in "@*" else values[int(name) : int(name) + 1]
        if not quoted:
            return BREAK.join(self._expand(value, quoted=False) for value in chosen)
        # What a file name pattern among the words of a call stands for is known before the call.
        return (" " if name == "*" else BREAK).join(map(protect, chosen))

    def _read_unassigned(self, name: str, *, quoted: bool) -> str:
        if name == "IFS" and "IFS" not in self._expected:
            return " \t\n" if quoted else BREAK
        if name in self._expected:
            return MANY
        if name in _NUMBERS:
            return ANY
        if name == "HOME":
            return "~"
        if name == "PWD":
            return self.folder
        if name in self._plain:
            return ANY
        if quoted and not (name.isdigit() or name in "@*"):
            return ANY
        return MANY
