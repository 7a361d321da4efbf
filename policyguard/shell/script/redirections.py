"""Redirections: the files they name, and what here-documents and here-strings give to read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from policyguard.shell.command_line import ANY, GLOB, MANY, Redirect, SimpleCommand
from policyguard.shell.script.inputs import NO_TAIL, NOTHING, UNKNOWN_FILE, Input, Tail
from policyguard.shell.script.rewriting import MARK, lift
from policyguard.shell.script.syntax_tree import Node, parse, redirects_last
from policyguard.shell.script.word_reader import read_raw
from policyguard.shell.script.written_files import WrittenFiles
from policyguard.shell.words import join

if TYPE_CHECKING:
    from policyguard.shell.script.statements import Statements

_SIMPLE_REDIRECT = re.compile(
    r"\d?[<>]&-|[012]?>&[012]|[012&]?>>?[ \t]*([\w./-]*[A-Za-z./_][\w./-]*)", re.ASCII
)
_NETWORK_FILES = ("/dev/tcp/", "/dev/udp/")
REDIRECTS = frozenset(("file_redirect", "herestring_redirect", "heredoc_redirect"))
WITH_LAST = frozenset(("pipeline", "list"))
"""What a redirection behind belongs to the last command of."""


_ALWAYS_OPENS = re.compile(
    rf"\d?<\s*{MARK}\d+\s*|[012&]?>>?[ \t]*/dev/null|[012]?>&[012]", re.ASCII
)
"""A here-document, what goes nowhere, and another number for what is open."""


class Redirections:
    """Reads the redirections of one reading."""

    def __init__(self, reading: Statements, files: WrittenFiles) -> None:
        self._reading = reading
        self._files = files

    def may_fail(self, node: Node) -> bool:
        """Whether a redirection of a statement may keep it from running."""
        redirects = [child for child in node.named_children if child.type in REDIRECTS]
        return not all(_ALWAYS_OPENS.fullmatch(self._reading.text(child)) for child in redirects)

    def read(self, node: Node) -> tuple[Tail, Input, list[Node]]:
        """Return the files of a redirection, what it gives to read, and processes it writes to."""
        reading = self._reading
        if simple := _SIMPLE_REDIRECT.fullmatch(reading.text(node)):
            return Tail((Redirect(True, simple[1]),)) if simple[1] else NO_TAIL, NOTHING, []
        operator = ""
        targets: list[Node] = []
        for child in node.children:
            if not child.is_named:
                operator = child.type
            elif child.type != "file_descriptor":
                targets.append(child)
        if node.type == "heredoc_redirect" or not targets:
            reading.add_unknown("syntax error")
            return NO_TAIL, NOTHING, []
        # The grammar takes the words of the command that stand behind for more targets.
        target, *behind = targets
        more = Tail((), tuple(word for node in behind for word in reading.read_words(node)))
        if operator.startswith(">") and target.type == "process_substitution":
            return more, NOTHING, [target]
        first = len(reading.commands)
        words = reading.read_words(target)
        written = tuple(range(first, len(reading.commands)))
        word = words[0] if len(words) == 1 else MANY
        if node.type == "herestring_redirect":
            star = ANY if "$" in reading.text(target) else "*"  # a star of the text stays one
            return more, Input(written, word.replace(GLOB, star)), []
        if word.startswith(MARK):
            return more, self._read_document(word), []
        number = word.rstrip("-")
        if operator == "<&" and number not in ("", "0", "1", "2"):
            return more, Input((), MANY), []  # what was opened there is not followed
        if operator in (">&", "<&") and (word == "-" or number.isdigit()):
            return more, NOTHING, []
        if operator == "<" and target.type == "process_substitution":
            return more, Input(written), []
        redirects: tuple[Redirect, ...] = (Redirect("<" not in operator, word),)
        if operator == "<>":
            redirects += (Redirect(True, word),)
        return Tail(redirects, more.words), self._read_file(operator, word), []

    def run(self, node: Node, given: Input, tail: Tail) -> list[int]:
        """Run a statement with its redirections, or the body of a function with those of that."""
        redirects = [child for child in node.named_children if child.type in REDIRECTS]
        bodies = [child for child in node.named_children if child.type not in REDIRECTS]
        body = bodies[-1] if bodies else None
        if body is not None and redirects_last(node):
            return self._reading.run(body, given, tail.join(Tail(unread=tuple(redirects))))
        tail, found, outputs = self._read_all(redirects, tail)
        if found and body is not None and body.type in WITH_LAST:
            tail = tail.join(Tail(given=found))  # it stands behind the last of several commands
        else:
            given = found or given
        if body is None:
            self._reading.add(SimpleCommand("", "", (), tail.redirects, sources=given.sources))
            indices: list[int] = []
        else:
            indices = self._reading.run(body, given, tail)
        self.feed(outputs, indices)
        return indices

    def run_last(self, node: Node, given: Input, tail: Tail) -> list[int]:
        """Run the last command of a list with the redirections behind it, which are unread."""
        known = Tail(tail.redirects, tail.words, tail.given)
        tail, found, outputs = self._read_all(tail.unread, known)
        indices = self._reading.run(node, given, tail.join(Tail(given=found)))
        self.feed(outputs, indices)
        return indices

    def _read_all(self, redirects: Sequence[Node], tail: Tail) -> tuple[Tail, Input, list[Node]]:
        found, outputs = NOTHING, list[Node]()
        for node in redirects:
            more, read, to_process = self.read(node)
            tail = tail.join(more)
            found = read or found
            outputs += to_process
        return tail, found, outputs

    def feed(self, outputs: Sequence[Node], indices: list[int]) -> None:
        """Run the commands of `>(…)`, which read what those of `indices` write."""
        reading = self._reading
        for output in outputs:
            given = Input(tuple(indices), reading.wrapped.outputs.static_output(indices))
            reading.run_apart(output.named_children, given)

    def _read_file(self, operator: str, path: str) -> Input:
        if operator not in ("<", "<>"):
            return NOTHING
        if path.startswith(_NETWORK_FILES):
            return Input((), MANY)
        return self._files.read(path) or UNKNOWN_FILE if operator == "<" else NOTHING

    def _read_document(self, word: str) -> Input:
        reading = self._reading
        number = word[1:]
        if not number.isdigit() or int(number) >= len(reading.documents):
            return Input((), MANY)
        document = reading.documents[int(number)]
        if document.quoted or not re.search(r"[$`\\]", document.body):
            return Input((), document.body)
        reading.count_text(document.body)
        first = len(reading.commands)
        escaped = document.body.replace('"', '\\"')
        outer = reading.source, reading.documents
        lifted, reading.documents = lift(f'"{escaped}"')
        reading.source = lifted.encode()
        root = parse(reading.source, reading.bounds.milliseconds)
        if root is None or root.has_error:
            reading.add_unknown("syntax error")
            text = MANY
        else:
            # The tree of a lone string is program, command, command_name, string.
            node = root
            while node.type != "string" and node.named_child_count:
                node = node.named_children[0]
            text = join(read_raw(reading, node, quoted=True), reading.bounds.words)
        reading.source, reading.documents = outer
        return Input(tuple(range(first, len(reading.commands))), text)
