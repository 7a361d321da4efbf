"""The statements of a syntax tree: which commands they run, and whose output reaches which."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from policyguard.shell.command_line import HERE, MANY, CommandLine, SimpleCommand
from policyguard.shell.folders import may_move, needs_place, place_from_start
from policyguard.shell.plain import has_control_characters
from policyguard.shell.script import syntax_tree
from policyguard.shell.script.branches import run_case, run_if
from policyguard.shell.script.control import Control
from policyguard.shell.script.evaluated import has_command, run_evaluated
from policyguard.shell.script.functions import Functions
from policyguard.shell.script.inputs import NO_TAIL, NOTHING, Input, Tail
from policyguard.shell.script.lists import run_list, run_moving, run_pipeline, run_plain
from policyguard.shell.script.loops import run_again_and_again, run_for
from policyguard.shell.script.redirections import REDIRECTS, WITH_LAST, Redirections
from policyguard.shell.script.rewriting import HereDocument, lift
from policyguard.shell.script.syntax_tree import DECLARATIONS, EXPRESSIONS, Node, is_simple, parse
from policyguard.shell.script.variables.assignments import assign, assign_counters, run_declaration
from policyguard.shell.script.variables.values import Kept
from policyguard.shell.script.variables.variables import Variables
from policyguard.shell.script.word_reader import EXPANSIONS, read_raw
from policyguard.shell.script.wrapped import Wrapped
from policyguard.shell.script.written_files import PROCESS_FILE
from policyguard.shell.words import finish, split_simple

if TYPE_CHECKING:
    from policyguard.shell.reader import ShellReader

_VANISHING = re.compile(r"""(?:"(?=[^"]*(?:\$\{?@|\[@\]))(?:\$@|\$\w+|\$\{[^{}"]*\})+"|[^'"])+""")
"""Words that are none if all in them is empty."""
_LOOPS = frozenset(("while_statement", "c_style_for_statement"))
_CONDITIONAL = _LOOPS | {"redirected_statement"}
"""Statements that may not run, or more than once."""
_UNCERTAIN = _CONDITIONAL | {
    "if_statement",
    "case_statement",
    "for_statement",
    "pipeline",
    "subshell",
    "negated_command",
}
"""Statements in which a function that is defined may be missing behind them."""
_BEARING_FAILURE = frozenset(("list", "pipeline", "subshell", "negated_command"))
"""Statements in which a command may fail, whatever `set -e` says."""
_HIDDEN_FILES = re.compile("(?:dot_?glob|glob_?dots|GLOBIGNORE)", re.IGNORECASE)
_NAMING_START = re.compile("pwd|PWD|realpath|readlink")
_IN_BACKGROUND = re.compile(rb"\s*&(?!&)")


class TooMuchError(Exception):
    """A text with more commands, words or depth than the bounds allow."""


class Statements:
    """One reading of a text, and of the texts within it."""

    def __init__(self, reader: ShellReader) -> None:
        self.reader = reader
        self.bounds = reader.facts.bounds
        self.commands: list[SimpleCommand] = []
        self.opaque: dict[str, None] = {}
        self.variables = Variables(
            reader.variables, self.bounds.loop_values, environment=reader.environment
        )
        self.documents: list[HereDocument] = []
        self.source = b""
        self.is_certain = True
        """Whether what is read now runs, in the shell that reads the text; in a function, whether
        it runs in each call, up to a `return`."""
        self.is_list_piped = False
        """Whether a pipe goes to the first command of the list that is run next, and no other."""
        self.first_end: Kept | None = None
        """The variables behind the first command of the latest list."""
        self.standard_input = NOTHING
        """What the shell reads, since an `exec` has said so."""
        self.matches_hidden = False
        """Whether a star may stand for names that begin with a dot."""
        self._names_start = False
        """Whether something may name the folder in which the text starts, as `$PWD` does."""
        self._depth = 0
        self.repeats = 1
        """How often the body of a loop is read, for each value of it and of those around it."""
        self._statements = 0
        self._unread_chars = self.bounds.chars * self.bounds.depth
        self.functions = Functions(self)
        self.control = Control(self)
        self.wrapped = Wrapped(self)
        self.redirections = Redirections(self, self.wrapped.files)

    def finish(self) -> CommandLine:
        """Return the result of the reading."""
        self.control.finish()
        if self._names_start:
            self.commands = [place_from_start(command) for command in self.commands]
        return CommandLine(tuple(self.commands), tuple(self.opaque))

    def read_text(self, text: str, given: Input = NOTHING) -> list[int]:
        """Read `text` as a script; return the indices of the commands whose output is its own."""
        if self._depth >= self.bounds.depth:
            return self.add_unknown("nesting is too deep", given.sources)
        if len(text) > self.bounds.chars:
            return self.add_unknown("text is too long", given.sources)
        if has_control_characters(text):
            return self.add_unknown("text has control characters", given.sources)
        self.count_text(text)
        outer = self.source, self.documents, self.is_certain
        ends_text = self.control.ends_text
        depth = self._depth
        self._depth += 1
        if depth:
            self.is_certain = self.control.ends_text = False
        try:
            indices = self._read_statements(text, given)
            if not depth:
                self.functions.read_rest()
            return indices
        except TooMuchError as error:
            return self.add_unknown(str(error), given.sources)
        except RecursionError:
            return self.add_unknown("nesting is too deep", given.sources)
        finally:
            self.source, self.documents, self.is_certain = outer
            self.control.ends_text = ends_text
            self._depth = depth

    def _read_statements(self, text: str, given: Input) -> list[int]:
        if "$" in text or "`" in text:
            self.variables.expect(text)
        self._names_start |= _NAMING_START.search(text) is not None
        if ("glob" in text or "GLOB" in text) and _HIDDEN_FILES.search(text):
            self.matches_hidden = True
        plain = self.reader.split_plain(text)
        if plain is not None:
            return (run_moving if needs_place(text) else run_plain)(self, plain, given)
        lifted, self.documents = lift(text)
        self.source = lifted.encode()
        root = parse(self.source, self.bounds.milliseconds)
        if root is None:
            return self.add_unknown("parser ran out of time", given.sources)
        self.variables.drifts |= root.has_error and may_move(text)
        indices = self.run(root, given, NO_TAIL)
        if root.has_error:
            indices += self.add_unknown("syntax error", given.sources)
        return indices

    def add_unknown(self, reason: str, sources: Sequence[int] = ()) -> list[int]:
        """Note that something runs which cannot be seen; `sources` are where it comes from."""
        self.opaque[reason] = None
        self.variables.doubt_assignments()
        command = SimpleCommand(MANY, MANY, (MANY,), sources=tuple(sources))
        if command not in self.commands:
            self.commands.append(command)
            return [len(self.commands) - 1]
        return [self.commands.index(command)]

    def add(self, command: SimpleCommand) -> int:
        """Add a command; return its index."""
        if len(self.commands) >= self.bounds.commands:
            raise TooMuchError("too many commands")
        if command.folders is HERE and self.control.is_moved:
            command = msgspec.structs.replace(command, folders=self.control.find_folders())
        self.commands.append(command)
        return len(self.commands) - 1

    def run(self, node: Node, given: Input, tail: Tail, *, chosen: bool = False) -> list[int]:
        """Read a statement; return the indices of the commands that write to its output.

        `chosen` says that the variables of a command have one value each.
        """
        self.count(1)
        self.variables.settle()
        if self.variables.have_choices and not chosen and is_simple(node):
            indices: list[int] = []
            for _ in self.variables.try_each(self.text(node)):
                indices += self.run(node, given, tail, chosen=True)
            return indices
        kind = node.type
        if tail.given and kind not in WITH_LAST:
            given, tail = tail.given, Tail(tail.redirects, tail.words)
        if kind == "command":
            return self._run_command(node, given, tail)
        if kind == "c_style_for_statement":  # its header runs in any case
            assign_counters(self, self.text(node).partition("))")[0])
        runs_all = kind == "redirected_statement" and syntax_tree.redirects_last(node)
        kept = self.variables.keep() if kind in _CONDITIONAL and not runs_all else None
        is_certain, ends_text = self.is_certain, self.control.ends_text
        if kind in _UNCERTAIN and not runs_all:
            self.is_certain = False
        if kind in _BEARING_FAILURE:
            self.control.ends_text = False
        self.enter()
        try:
            return self._run_compound(kind, node, given, tail)
        finally:
            self.leave()
            self.is_certain, self.control.ends_text = is_certain, ends_text
            if kind == "redirected_statement" and kept is not None:
                if self.redirections.may_fail(node):
                    self.variables.join_values(kept)
                    self.variables.position = self.variables.position.skip("&&", kept.position)
            elif kept is not None:
                self.variables.join(kept)

    @property
    def replaces_values(self) -> bool:
        """Whether an assignment replaces a value: no function may have returned before it."""
        return self.is_certain and not self.functions.is_running

    def count(self, number: int) -> None:
        """Count statements, or parts of words."""
        self._statements += number
        if self._statements > self.bounds.statements:
            raise TooMuchError("too many statements")

    def count_text(self, text: str) -> None:
        """Count a text, which a function may read again and again."""
        self._unread_chars -= len(text)
        if self._unread_chars < 0:
            raise TooMuchError("texts are too long")

    def check_gaps(self, node: Node) -> None:
        """Note where the grammar took two lines for one, or an escaped space for a gap."""
        end = node.start_byte
        for child in node.children:
            gap = self.source[end : child.start_byte].replace(b"\\\n", b"")
            if b"\n" in gap or b"\\" in gap:
                self.add_unknown("syntax error")
                self.control.drift()
            end = child.end_byte

    def check_words(self, words: Sequence[str]) -> None:
        """Stop where a command has more words than the bounds allow."""
        if len(words) > self.bounds.words:
            raise TooMuchError("too many words")

    def check_length(self, length: int) -> None:
        """Stop where the words of a command become longer than any text."""
        if length > self.bounds.chars:
            raise TooMuchError("words are too long")

    def enter(self) -> None:
        """Count a construct within another."""
        if self._depth >= self.bounds.depth:
            raise TooMuchError("nesting is too deep")
        self._depth += 1

    def leave(self) -> None:
        """End what `enter` began; an exception ends all up to the text."""
        self._depth -= 1

    def _run_compound(self, kind: str, node: Node, given: Input, tail: Tail) -> list[int]:
        if kind == "pipeline":
            return run_pipeline(self, node, given, tail)
        if kind == "redirected_statement":
            return self.redirections.run(node, given, tail)
        if kind == "list":
            return run_list(self, node, given, tail)
        if kind == "for_statement":
            return run_for(self, node, given, tail)
        if kind == "if_statement":
            return run_if(self, node, given, tail)
        if kind == "case_statement":
            return run_case(self, node, given, tail)
        if kind in DECLARATIONS:
            return run_declaration(self, node, tail)
        if kind == "variable_assignment":
            names = assign(self, node, is_certain=True)
            return [self.add(SimpleCommand("", "", (), tail.redirects, names))]
        if kind in ("comment", "heredoc_body"):
            return []
        if kind in REDIRECTS:
            more, _, _ = self.redirections.read(node)
            return [self.add(SimpleCommand("", "", (), (*tail.redirects, *more.redirects)))]
        if kind in EXPRESSIONS:
            read_raw(self, node, quoted=True)
            text = self.text(node).replace("'", "")
            if has_command(text):
                run_evaluated(self.wrapped, text)
            return []
        if kind == "function_definition":
            self.functions.define(node, given, tail)
            return []
        if kind == "subshell":
            return self.run_apart(node.named_children, given, tail)
        if kind in _LOOPS:
            return run_again_and_again(self, node.named_children, given, tail)
        indices = self.run_all(node.named_children, given, tail)
        if kind == "negated_command":
            self.variables.position = self.variables.position.negate()
        return indices

    def run_all(self, nodes: Sequence[Node], given: Input, tail: Tail) -> list[int]:
        """Run statements one after the other."""
        indices: list[int] = []
        for node in nodes:
            is_certain, is_apart = self.is_certain, self.is_in_background(node)
            kept = self.variables.keep() if is_apart or node.type == "list" else None
            self.is_certain = is_certain and not is_apart
            outer = self.control.leave_loops() if is_apart else None
            indices += self.run(node, given, tail)
            self.is_certain = is_certain
            if kept is not None:
                self.variables.join_values(kept if is_apart else self.first_end or kept)
                if outer is not None:
                    self.variables.position = kept.position
                    self.control.return_to(outer)
            elif self.control.stops and is_simple(node):
                self.control.stop_on_failure()
        return indices

    def run_tolerating_failure(self, nodes: Sequence[Node], given: Input, tail: Tail) -> list[int]:
        """Run statements that may fail without an end of the text, whatever `set -e` says."""
        ends_text, self.control.ends_text = self.control.ends_text, False
        indices = self.run_all(nodes, given, tail)
        self.control.ends_text = ends_text
        return indices

    def is_in_background(self, node: Node) -> bool:
        """Whether a statement runs while those behind it do."""
        return _IN_BACKGROUND.match(self.source, node.end_byte) is not None

    def run_apart(self, nodes: Sequence[Node], given: Input, tail: Tail = NO_TAIL) -> list[int]:
        """Run statements in a process of their own, whose variables nothing else sees."""
        kept, is_certain = self.variables.keep(), self.is_certain
        outer = self.control.leave_loops()
        self.is_certain = False
        indices = self.run_tolerating_failure(nodes, given, tail)
        self.variables.restore(kept)
        self.is_certain = is_certain
        self.control.return_to(outer)
        return indices

    def read_words(self, node: Node) -> list[str]:
        """Return the words that an unquoted `node` becomes."""
        raw = read_raw(self, node, quoted=False)
        if not raw and (node.type in EXPANSIONS or _VANISHING.fullmatch(self.text(node))):
            return []
        return finish(raw, self.bounds.words)

    def _run_command(self, node: Node, given: Input, tail: Tail) -> list[int]:
        simple = split_simple(self.text(node))
        if simple is not None:
            self.check_words(simple)
            return self.wrapped.add([*simple, *tail.words], given, tail.redirects, (), ())
        words: list[str] = []
        names: tuple[str, ...] = ()
        outputs, assignments = list[Node](), list[Node]()
        length, first = 0, len(self.commands)
        sources = given.sources
        self.check_gaps(node)
        for child in node.named_children:
            kind = child.type
            if kind == "variable_assignment":
                assignments.append(child)
            elif kind in REDIRECTS:
                more, read, to_process = self.redirections.read(child)
                tail = tail.join(more)
                outputs += to_process
                given = read or given
                sources += read.sources
            elif kind == "process_substitution" and self.text(child)[0] == ">":
                outputs.append(child)
                words.append(PROCESS_FILE)
            else:
                more_words = self.read_words(child)
                length += sum(map(len, more_words))
                self.check_length(length)
                words += more_words
        words += tail.words
        self.check_words(words)
        kept = self.variables.keep() if assignments else None
        for child in assignments:  # all other words are expanded before
            names += assign(self, child, is_certain=False)
        made = tuple(range(first, len(self.commands)))
        given = Input(sources, given.text, made)
        indices = self.wrapped.add(words, given, tail.redirects, names, ())
        self.redirections.feed(outputs, indices)
        if kept is not None:
            self.variables.end_command(names, kept)
        return indices

    def text(self, node: Node) -> str:
        """Return the source of `node`."""
        return self.source[node.start_byte : node.end_byte].decode()

    def run_substitution(self, node: Node, *, is_cut: bool) -> str:
        """Read the commands of `$(…)`; return what `Outputs.substitute` does."""
        self.enter()
        indices = self.run_apart(node.named_children, NOTHING)
        self.leave()
        return self.wrapped.outputs.substitute(indices, is_cut=is_cut)
