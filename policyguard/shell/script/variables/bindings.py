"""Variables that a text assigns, as far as their values are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policyguard.shell.command_line import ANY, MANY
from policyguard.shell.folders import ANYWHERE, AT_START, Place, be_at, name_from_start
from policyguard.shell.script.variables.assigned_names import (
    SET_BY_CD,
    UNKNOWN_NAME,
    VARIABLE_NAME,
    find_assigned,
    find_counted,
    find_settled,
)
from policyguard.shell.script.variables.positional import Positional, move
from policyguard.shell.script.variables.values import (
    UNKNOWN,
    WHITE,
    Declared,
    Kept,
    Value,
    Values,
    append,
    is_known,
    is_long,
    without_patterns,
)


class Bindings:
    """The values that a text has given to its variables, up to some place of it."""

    position = AT_START
    """Where the shell may be."""
    drifts = False
    """Whether something may change the folder at any time."""
    process = 0
    """Which shell it is: functions of one are not known in another that it starts."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._values: dict[str, Values] = {}
        self.have_choices = False
        """Whether some variable has had several values."""
        self._constants: set[str] = set()
        self._blank: set[str] = set()
        """Constants that may never get a value."""
        self._exported: frozenset[str] = frozenset()
        """Variables that each program which the text runs is certain to get."""
        self._hidden: list[str] = []
        """Names that programs may not get since some place, in order."""
        self._arrays: set[str] = set()
        """Names of which a text may be the first word only."""
        self._is_replacing = True
        """Whether nothing can keep an assignment that is reached from replacing a value."""
        self._locals: list[Declared] = []
        """For each function that runs, what its own variables were before, and if that is sure."""
        self._texts: list[str] = []
        self._expected: set[str] = set()
        self._unstable: set[str] = set()
        """Names whose values are never known: a trap changes them, for example."""
        self._counted: set[str] = set()
        """Names that arithmetic may make a number at any time."""
        self._moves_anytime = False
        self._has_references = False
        self._losses = 0
        self._relied: dict[tuple[int, str], Values] = {}
        self.has_surprises = False
        """Whether what was relied on has changed."""
        self.positional: Positional | None = None
        """`$0`, `$1` and so on, where they are known."""
        self.lines_read: dict[str, tuple[str, ...]] = {}
        """What each variable has of a line that was read last, if there was one."""

    def expect(self, text: str) -> None:
        """Note the names that `text` assigns anywhere: until then their values are unknown."""
        self._texts.append(text)
        self._expected.update(find_assigned(text))
        self.count(find_counted(text))

    def settle(self) -> Place:
        """Begin a command that runs whether or not the last one succeeded; return where."""
        position = self.position
        if position.passed is not position.failed:
            self.position = position = be_at(position.settle())
        return position.passed

    def find_here(self) -> str:
        """Return what `$PWD` stands for: a path that means the same wherever the shell goes."""
        place = self.position.passed
        if self.drifts or place is not self.position.failed:
            return ANY
        return name_from_start(place.folders)

    def leave_folder(self) -> None:
        """Make unknown what `cd` assigns."""
        self.forget([name for name in SET_BY_CD if name in self._values])

    def destabilize(self, names: Iterable[str]) -> None:
        """Make the values of these variables unknown, whatever is assigned later."""
        before = len(self._unstable)
        self._unstable.update(names)
        self.has_surprises |= any(name in self._unstable for _, name in self._relied)
        self._losses += len(self._unstable) - before

    def count(self, names: Iterable[str]) -> None:
        """Note that arithmetic may make these variables numbers, at any time."""
        new = {*names} - self._counted
        self._counted |= new
        self.has_surprises |= any(name in new for _, name in self._relied)
        self._losses += len(new)

    def is_assigned(self, name: str) -> bool:
        """Whether the text, or what runs it, may have given `name` a value."""
        names = (self._expected, self._values, self._unstable, self._counted)
        return any(name in known for known in names)

    def assign(self, name: str, value: Value, *, is_certain: bool) -> None:
        """Give `name` a value, beside those that it has unless this is certain to run.

        An assignment of what is not known may fail, and leave the value as it was.
        """
        known = self._values.get(name, UNKNOWN if name in self._blank else ())
        if is_certain and self._replaces(name) and is_known(value):
            if not all(isinstance(one, str) and one != MANY for one in known):
                self._arrays.add(name)
            known = ()
        self._set(name, (*known, without_patterns(value)))
        self._note(name)

    def append(self, name: str, value: Value, *, is_certain: bool) -> None:
        """Append to what `name` stands for; if that is certain, it is not what it was."""
        known = self.list_values(name)
        longer = [append(one, without_patterns(value)) for one in known]
        kept = () if is_certain and self._replaces(name) else known
        self._set(name, (*kept, *longer))
        self._note(name)

    def _replaces(self, name: str) -> bool:
        return self._is_replacing and name not in self._constants

    def _set(self, name: str, values: Iterable[Value]) -> None:
        several = tuple(dict.fromkeys(values))
        if MANY in several or len(several) > self._max_values or any(map(is_long, several)):
            several = UNKNOWN
        self._values[name] = several
        self.have_choices = self.have_choices or len(several) > 1

    def fix(self, names: Iterable[str]) -> None:
        """Note that these variables are constants, which cannot be changed or removed."""
        names = set(names)
        self._constants |= names
        self._blank |= names - self._values.keys()

    def export(self, names: Iterable[str]) -> None:
        """Note that programs get these variables for certain."""
        self._exported |= frozenset(names)

    def hide(self, names: Iterable[str]) -> None:
        """Note that programs may not get these variables."""
        names = frozenset(names)
        self._exported -= names
        self._hidden += names

    def add_arrays(self, names: Iterable[str]) -> None:
        """Note that these variables are arrays, whatever is assigned to them."""
        self._arrays.update(names)

    def doubt_assignments(self) -> None:
        """Note that assignments from here on may leave a variable as it was."""
        self._is_replacing = False

    def keep(self) -> Kept:
        """Return the values, for `restore` after what has variables of its own."""
        values, hidden = dict(self._values), len(self._hidden)
        return Kept(values, self.positional, self._losses, self._exported, hidden, self.position)

    def restore(self, kept: Kept) -> None:
        """Give all variables the values that they had."""
        self._values, self.positional = dict(kept.values), kept.positional
        self._exported, self.position = kept.exported, kept.position

    def find_changes(self, kept: Kept) -> list[str]:
        """Return the names of the variables that have changed since."""
        values, now = kept.values, self._values
        changed = [name for name, value in values.items() if now.get(name, UNKNOWN) != value]
        return changed + [name for name in now if name not in values]

    def begin_again(self, kept: Kept, *, forget: bool) -> Kept:
        """Begin the body of a loop once more, with what it has changed since; return the values.

        `forget` says that what has changed becomes unknown. What the text assigns, and had no
        value, is unknown until it is assigned again.
        """
        for name in self.find_changes(kept):
            if name not in kept.values and name in self._expected:
                self._values.pop(name, None)
            elif forget:
                self._values[name] = UNKNOWN
        if forget and not kept.position.covers(self.position):
            self.position = be_at(ANYWHERE)
        self.join(kept)
        return self.keep()

    def join(self, *places: Kept) -> None:
        """Make all that is known one of what it is now and at these places: any may come before."""
        self.join_values(*places)
        for kept in places:
            self.position = self.position.join(kept.position)

    def join_values(self, *places: Kept) -> None:
        """Make each value one of those that it has now or at these places."""
        for kept in reversed(places):
            for name in self.find_changes(kept):
                self._set(name, (*kept.values.get(name, UNKNOWN), *self.list_values(name)))
            self._exported &= kept.exported
            if self.positional is not kept.positional:
                self.positional = None

    def add_references(self) -> None:
        """Make all values unknown for good: some names are those of other variables."""
        self._losses += not self._has_references
        self._has_references = True
        self.has_surprises |= bool(self._relied)

    def destabilize_changes(self, kept: Kept) -> None:
        """Make unknown for good what was assigned since `forget_all`: it may happen at any time.

        `kept` are the values from before, which the others have again.
        """
        changed = [name for name, now in self._values.items() if now != kept.values.get(name)]
        self.destabilize((*changed, *self._hidden[kept.hidden :]))
        self.doubt_assignments()  # with `extdebug`, a trap has commands left out
        self._moves_anytime = self._moves_anytime or self.positional is not None
        self.restore(kept)

    def has_lost(self, kept: Kept) -> bool:
        """Whether what was known has changed since, or what the text does not seem to assign."""
        if kept.losses != self._losses or not kept.exported <= self._exported:
            return True
        if kept.positional is not None and self.positional is not kept.positional:
            return True
        if not kept.position.covers(self.position):
            return True
        for name in self.find_changes(kept):
            before = kept.values.get(name, UNKNOWN if name in self._expected else ())
            if before != UNKNOWN and not {*before}.issuperset(self.list_values(name)):
                return True
        return False

    def move_positional(self, program: str, words: Sequence[str]) -> None:
        """Change `$1`, `$2` and so on as a program of `MOVERS` does."""
        self.positional = move(self.positional, program, words)

    def replace(self, name: str, value: str) -> None:
        """Give `name` a value of a loop, whatever it was before.

        A file name pattern in it stands for the names, not for its characters.
        """
        self._values[name] = (value,)
        self._note(name)

    def replace_by_values(self, name: str, values: Values) -> None:
        """Give `name` one of these values, unless it is a constant."""
        self._set(name, values if self._replaces(name) else (*self.list_values(name), *values))
        self._note(name)

    def replace_by_lines(self, name: str, lines: Sequence[str]) -> None:
        """Give `name` one of these lines, or nothing behind the last one."""
        self.replace_by_values(name, (*lines, ""))
        self.lines_read[name] = tuple(lines)

    def list_values(self, name: str) -> Values:
        """Return what `name` may stand for."""
        return self._values.get(name, UNKNOWN)

    def add_values(self, name: str, values: Iterable[Value], kept: Kept) -> None:
        """Give `name` one of these values, or of those that it had at some place, if it had any."""
        self._set(name, (*kept.values.get(name, ()), *values))

    def remove(self, names: Iterable[str]) -> None:
        """Make these variables unknown: they may have no value, or that of a caller."""
        for name in names:
            self._expected.add(name)
            self.hide([name])
            if name in self._values:
                self.forget([name])

    def end_command(self, names: Iterable[str], kept: Kept) -> None:
        """Remove what only a command had: `x=y program`. What had a value before is joined."""
        for name in {*names} - kept.values.keys():
            self._values.pop(name, None)

    def enter_function(self, declared: Declared) -> None:
        """Let what is declared from here on be variables of a function's own."""
        self._locals.append(declared)

    def declare(self, names: Iterable[str], *, is_certain: bool) -> None:
        """Make these variables of the function that runs, without a value if that is certain."""
        names = list(names)
        self.hide(names)
        for name in names:
            if self._locals and name not in self._locals[-1]:
                self._locals[-1][name] = self._values.get(name), is_certain
                if is_certain:
                    self._values.pop(name, None)
                self._note(name)

    def expose(self, names: Iterable[str]) -> None:
        """Note that these may be variables of callers, even where a function has declared them."""
        for name in names:
            for declared in self._locals:
                if name in declared:
                    declared[name] = declared[name][0], False

    def forget_hidden(self, names: Iterable[str]) -> None:
        """Make unknown what `declare -g` assigns while a function has a variable of that name."""
        self.forget(name for name in names if any(name in declared for declared in self._locals))

    def leave_function(self) -> Declared:
        """Give the variables that a function has declared the values of its caller."""
        declared = self._locals.pop()
        for name, (values, is_certain) in declared.items():
            if not is_certain:
                self._set(name, (*(values or UNKNOWN), *self.list_values(name)))
            elif values is not None:
                self._values[name] = values
            else:
                self._values.pop(name, None)
        return declared

    def forget(self, names: Iterable[str]) -> None:
        """Make the values of these variables unknown."""
        names = list(names)
        for name in names:
            self._values[name] = UNKNOWN
            self._note(name)
        self.hide(names)

    def forget_named(self, words: Iterable[str]) -> None:
        """Make unknown the variables whose names these words begin with: `x=y`, `x[0]`."""
        self.forget(match[0] for word in words if (match := VARIABLE_NAME.match(word)))

    def forget_unnamed(self, words: Iterable[str]) -> None:
        """Make all values unknown if one of these names a variable that is not known."""
        if any(map(UNKNOWN_NAME.match, words)):
            self.forget(list(self._values))

    def forget_all(self, *, but_settled_outside: Sequence[str] | None = None) -> Kept:
        """Make values unknown, as where nothing says when a text is read; return what they were.

        Given the texts of all functions, those stay that are assigned once, and in none of these.
        """
        kept = self.keep()
        self._expected.update(self._values)
        outside = but_settled_outside
        settled = [] if outside is None else find_settled(self._values, self._texts, outside)
        self._values = {name: self._values[name] for name in settled}
        self.positional = None
        return kept

    def rely_on_values(self, text: str) -> None:
        """Note that a text, and what it may evaluate, reads what is known now at any later time."""
        names = self._values.keys() & set(VARIABLE_NAME.findall(text))
        new = {
            name: self._values[name] for name in names if (self.process, name) not in self._relied
        }
        self._relied |= {(self.process, name): self._values[name] for name in names}
        if new:
            self.rely_on_values(str(new))

    def _note(self, name: str) -> None:
        """Note that a value has been changed."""
        relied = self._relied and self._relied.get((self.process, name))
        if relied and not {*relied}.issuperset(self.list_values(name)):
            self.has_surprises = True

    def replace_by_one_of(self, name: str, values: list[str]) -> None:
        """Give `name` the values of a loop, one after the other, whatever it was before."""
        if len(values) == 1:
            value = values[0]
        elif values and not any(
            word[:1] in ("-", MANY, "") or WHITE.search(word) for word in values
        ):
            value = ANY
        else:
            value = MANY
        self.replace(name, value)
