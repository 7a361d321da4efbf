"""What the variables of a text stand for where it uses them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.model.shell import Wrapper
from policyguard.shell.builtins import DECLARERS, READERS
from policyguard.shell.command_line import ANY, GLOB, MANY, MARKS, NAME
from policyguard.shell.expansion import change
from policyguard.shell.options import WrapperOptions
from policyguard.shell.script.mounts import rename_mounted
from policyguard.shell.script.variables.assigned_names import READ_INTO
from policyguard.shell.script.variables.bindings import Bindings
from policyguard.shell.script.variables.positional import Positional, choose
from policyguard.shell.script.variables.values import UNKNOWN, WHITE, Kept, Value
from policyguard.shell.words import BREAK, EMPTY, is_static, protect

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_USED = lazy_pattern(r"\$\{?([A-Za-z_]\w*)")
_NUMBERS = frozenset("?#$!-") | {"RANDOM", "LINENO", "SECONDS", "UID", "EUID", "PPID", "BASHPID"}


def _is_number(value: Value) -> bool:
    return value == NAME or (isinstance(value, str) and value.isdigit())


class Variables(Bindings):
    """The variables of a text, its arguments, and what the environment is known to have."""

    _processes = 0

    def __init__(
        self,
        plain: Mapping[str, str],
        max_values: int,
        *,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(max_values)
        if environment:
            self._values.update((name, (value,)) for name, value in environment.items())
            self.export(environment)
        self._plain = plain

    @contextmanager
    def in_process(self, given: Collection[str] = (), *, is_clean: bool = False) -> Iterator[None]:
        """Let each variable have no value as well, where a program may not get it.

        It gets those of `given` that are no constants, and exported ones that have a value and are
        no arrays; if `is_clean`, perhaps none. It changes none.
        """
        kept, process = self.keep(), self.process
        self._processes += 1
        self.process = self._processes
        passed = set() if is_clean else set(filter(self._is_exported, kept.exported))
        self._exported = frozenset(passed)
        if not is_clean:
            passed.update(name for name in given if name not in self._constants)
        for name, values in kept.values.items():
            if name not in passed:
                self._set(name, (*values, ""))
        try:
            yield
        finally:
            self.restore(kept)
            self.process = process

    def _is_exported(self, name: str) -> bool:
        values = self._values.get(name)
        if values is None or name in self._arrays:
            return False
        return not any(isinstance(value, tuple) for value in values)

    def try_each(self, text: str) -> Iterator[None]:
        """Let the variables that `text` uses be one of their values, then another; then each."""
        names = self._find_choices(text) if self.have_choices else []
        if not names:
            yield
            return
        kept, ends = self.keep(), list[Kept]()
        for chosen in product(*(self._values[name] for name in names)):
            self.restore(kept)
            self._values.update(zip(names, ((value,) for value in chosen), strict=True))
            yield
            ends.append(self.keep())
        self.join(*ends)

    def _find_choices(self, text: str) -> list[str]:
        """Return the names in `text` that have several values, as far as they are few."""
        names: list[str] = []
        count = 1
        for name in dict.fromkeys(_USED.findall(text)):
            if name in self._counted:
                continue
            values = self.list_values(name)
            count *= len(values)
            if count > self._max_values:
                break
            if len(values) > 1:
                names.append(name)
        return names

    def read(self, name: str, *, quoted: bool) -> str:
        """Return what `$name` stands for, as a part of a word."""
        if name == "_" or self._is_never_known(name):
            return MANY
        if name in _NUMBERS:
            is_assigned = name in self._values or name in self._expected
            return ANY if is_assigned else NAME  # another shell may have what was assigned
        values = self._values.get(name)
        if values is None and self._known_positional is not None and _is_positional(name):
            return self.read_positional(name, quoted=quoted)
        if values is None:
            return self._read_unassigned(name, quoted=quoted)
        if name in self._counted:
            return NAME if all(map(_is_number, values)) else MANY
        if len(values) > 1:
            return MANY
        # Of an array, zsh reads all words, and bash the first.
        words = (values[0],) if isinstance(values[0], str) else values[0]
        return self._expand(words[0], quoted=quoted) if len(words) == 1 else MANY

    def read_changed(self, name: str, operation: str, *, quoted: bool) -> str:
        """Return what `${name` and an operation with its brace stand for, as a part of a word."""
        values: Sequence[Value] | None = self._values.get(name)
        if name in ("_", "IFS") or name in _NUMBERS or self._is_computed(name):
            return MANY
        if _is_positional(name):
            values = self._choose(name)
        if values is None:
            return change(self._read_unassigned(name, quoted=quoted), operation)
        if len(values) != 1 or not isinstance(values[0], str):
            return MANY
        changed = change(values[0], operation)
        return changed if changed == MANY else self._expand(changed, quoted=quoted)

    def read_into(self, program: str, words: Sequence[str]) -> None:
        """Make unknown what a program of `READERS` assigns, or `printf -v`, or a declaration."""
        if program == "printf" and not any(word[:2] == "-v" for word in words):
            return
        self.forget_unnamed(words[:2] if program == "printf" else words)
        if program in DECLARERS:  # `\\readonly x`
            self.doubt_assignments()
        for word in words:
            # `read -rax` and `printf -vx` have the name in the same word.
            self.forget_named((word, word[2:], word[3:], word[4:]) if word[:1] == "-" else (word,))
        if program in READERS:
            self.forget(READ_INTO)
            if any(word[:2] == "-C" for word in words):  # a command, for each line that is read
                self.positional, self._moves_anytime = None, True

    def read_array(self, name: str, *, quoted: bool, joined: bool) -> str:
        """Return what `${name[@]}` stands for, or `${name[*]}`, which is `joined` in quotes."""
        values = self.list_values(name)
        if len(values) > 1 or isinstance(values[0], str) or self._is_computed(name):
            return MANY if name in self._arrays else self.read(name, quoted=quoted)
        return self._read_words(values[0], quoted=quoted, joined=joined)

    def _is_never_known(self, name: str) -> bool:
        return name in self._unstable or (self._has_references and name.isidentifier())

    def _is_computed(self, name: str) -> bool:
        return name in self._counted or self._is_never_known(name)

    @property
    def _known_positional(self) -> Positional | None:
        return None if self._moves_anytime else self.positional

    def _expand(self, value: str, *, quoted: bool) -> str:
        """Return a value as a part of a word; without quotes it may be several words."""
        if quoted:
            return protect(value)
        if self._has_own_separators and not (value.isalnum() and self._separates_no_letters()):
            return MANY
        value = re.sub(r"[*?]", GLOB, value)
        return WHITE.sub(BREAK, protect(value))

    @property
    def _has_own_separators(self) -> bool:
        return self.is_assigned("IFS")

    def find_separators(self) -> str:
        """Return the characters that separate the fields of a line; `MANY` if they are unknown."""
        if not self._has_own_separators:
            return " \t\n"
        value, *others = UNKNOWN if self._is_computed("IFS") else self.list_values("IFS")
        return value if isinstance(value, str) and not others else MANY

    def _separates_no_letters(self) -> bool:
        return not any(
            isinstance(value, tuple) or not is_static(value) or any(map(str.isalnum, value))
            for value in self._values.get("IFS", ())
        )

    def read_positional(self, name: str, first: int = 1, *, quoted: bool) -> str:
        """Return what `$name` stands for; of `$@` and `$*` the words from `$first` on."""
        chosen = self._choose(name, first)
        if chosen is None:
            return MANY
        return self._read_words(chosen, quoted=quoted, joined=name == "*")

    def _read_words(self, words: Sequence[str], *, quoted: bool, joined: bool) -> str:
        if not quoted:
            return BREAK.join(self._expand(value, quoted=False) for value in words)
        if joined and self._has_own_separators:
            return MANY
        # What a file name pattern among the words stands for is known before they are used.
        return (" " if joined else BREAK).join(protect(value) or EMPTY for value in words)

    def _choose(self, name: str, first: int = 1) -> Positional | None:
        """Return the word of `$name`; of `$@` and `$*` those from `$first` on."""
        known = self._known_positional
        if known is None:
            return None
        return choose(known, int(name), int(name) + 1) if name.isdigit() else choose(known, first)

    def is_given(self, name: str) -> bool | None:
        """Whether a variable stands for some text; None if that is not known."""
        if not _is_positional(name):
            value = self.read(name, quoted=True) if name in self._values else ""
            return True if value and is_static(value) else None
        words = self._choose(name)
        if words is None or not words:
            return None if words is None else False
        return True if any(word.strip(MARKS) for word in words) else None

    def _read_unassigned(self, name: str, *, quoted: bool) -> str:
        if name == "IFS" and "IFS" not in self._expected:
            return " \t\n" if quoted else BREAK
        if name in self._expected:
            return MANY
        if name == "0":
            return MANY if "BASH_ARGV0" in self._expected else ANY
        if name == "HOME":
            return "~"
        if name == "PWD":
            return self.find_here() if quoted or not self._has_own_separators else MANY
        if name in self._plain:  # a file that is read may assign any
            return self._plain[name] if self._is_replacing else ANY
        if quoted and not _is_positional(name):
            return ANY
        return MANY


@contextmanager
def enter_wrapper(reading: Statements, wrapper: Wrapper, index: int) -> Iterator[None]:
    """Let the variables of a text be what they are where the command of a wrapper runs."""
    outer = reading.variables
    if wrapper.later:
        arguments = reading.commands[index].arguments
        kept = reading.functions.forget_unsettled("\n".join(arguments))
        reading.control.leave()
        signals = arguments[1:]
        try:
            yield
        finally:
            outer.destabilize_changes(kept)
            reading.functions.expect_later(index)
            at_end = bool(signals) and {"EXIT", "0"}.issuperset(signals)
            reading.control.note_later(index + 1, at_end=at_end)
    elif wrapper.elsewhere:
        bounds = reading.bounds
        reading.variables = Variables(reading.reader.variables, bounds.loop_values)
        reading.variables.drifts = outer.drifts
        reading.variables.process = -1
        reading.variables.position = outer.position
        first = len(reading.commands)
        try:
            yield
        finally:
            outer.drifts |= reading.variables.drifts
            outer.has_surprises |= reading.variables.has_surprises
            reading.variables = outer
            if wrapper.mounts:
                mounts = _find_mounts(reading, index)
                rename_mounted(reading.commands, first, mounts, reading.commands[index].folders)
    elif wrapper.same_shell:
        position = outer.position
        yield
        if wrapper.feeds:  # it is a process of its own
            outer.position = position
    else:
        with outer.in_process(reading.commands[index].variables, is_clean=wrapper.clears):
            yield


def _find_mounts(reading: Statements, index: int) -> list[str]:
    """Return the options of a command that give folders other names."""
    command = reading.commands[index]
    _, wrapper, words = reading.reader.wrappers.find_for(command.program, command.arguments)
    if wrapper is None:
        return []
    options = WrapperOptions(wrapper)
    options.read(words)
    return options.mounts


def _is_positional(name: str) -> bool:
    return name.isdigit() or name in "@*"
