"""Options of programs that run other commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from policyguard.model.shell import CodeRunner, Wrapper


class WrapperOptions:
    """The options of a wrapper in front of what it runs."""

    def __init__(self, wrapper: Wrapper) -> None:
        self.wrapper = wrapper
        self.texts: list[str] = []
        self.files: list[str] = []
        """Files of commands that options name."""
        self.folder = ""
        """The folder in which the command runs; empty: that of the wrapper itself."""
        self.mounts: list[str] = []
        """Folders that have another name where the command runs, as they are given."""
        self.leaves = wrapper.unknown_folder is True
        """Whether the command runs in a folder that is not known."""
        self.program = wrapper.runs
        """The program, if it is not the first word of the command."""
        self.placeholder = ""
        self.reads_input = False
        self.other_command: list[str] = []
        """The command if a word is its program, not the placeholder: systems differ."""
        self.reads_file = False
        """Whether an option names the file that it reads instead of its input."""
        self.has_separator = False
        """Whether an option names what ends the words of its input, other than a line break."""
        self.keeps_spaces = False
        """Whether spaces in the input end no word."""
        self.positional: list[str] = []
        """What stands behind a command text: its `$0`, `$1` and so on."""
        self._wants_text = self._may_be_program = False

    def read(self, arguments: Sequence[str]) -> int:
        """Read the options; return where the operands begin."""
        wrapper = self.wrapper
        operands = -1
        index = 0
        while index < len(arguments):
            word = arguments[index]
            if word == "--":
                index += 1
                break
            if wrapper.runs and word.partition("=")[0] not in wrapper.values:
                break  # an option of the program
            if word == "-" and wrapper.input_program:
                self.program = wrapper.input_program
                break
            if word == "-":
                self.reads_input = True
                self._note_folder(word)
            elif word[:1] == "-" or (word[:1] == "+" and wrapper.script):
                index += self._read_option(word, arguments[index + 1 : index + 2])
                if self._may_be_program:
                    self._may_be_program = False
                    self.other_command = list(arguments[index:])
                if self.texts and wrapper.assignments:  # what stands behind belongs to the text
                    index += 1
                    break
            elif wrapper.text and not (wrapper.script or wrapper.assignments):
                operands = index if operands < 0 else operands
            else:
                break
            index += 1
        if self._wants_text and index < len(arguments):
            self.texts.append(arguments[index])
            self.positional = list(arguments[index + 1 :])
        if wrapper.images and not self.program:
            self.program = _find_in_image(wrapper.images, "".join(arguments[index : index + 1]))
        return operands if operands >= 0 else index

    def find_folder(self) -> str:
        """Return the folder in which the command runs, by its name there."""
        folder = self.folder
        if not self.wrapper.elsewhere or folder[:1] == "/":
            return folder
        same = f"{folder}:{folder}"  # `-v "$PWD:$PWD"` has one name inside and outside
        return folder if any(f"{mount}:".startswith(f"{same}:") for mount in self.mounts) else ""

    def read_before(self, words: Sequence[str]) -> None:
        """Read the options that stand before a subcommand."""
        for index, word in enumerate(words):
            if word[:1] == "-":
                self._read_option(word, words[index + 1 : index + 2])

    def _read_option(self, word: str, following: Sequence[str]) -> int:
        """Read one word of options; return how many words its value takes."""
        wrapper = self.wrapper
        name, equals, value = word.partition("=")
        self._note_folder(word)
        flags = {name, word[:2]}  # `-d,` has its value in the same word
        self.keeps_spaces |= not flags.isdisjoint(wrapper.whole)
        self.reads_file |= not flags.isdisjoint(wrapper.input_from)
        if not flags.isdisjoint(wrapper.separators):
            separator = value if equals else word[2:] or "".join(following)
            self.has_separator = separator not in ("\\n", "\n", "\\0")
        if name in wrapper.mounts:
            self.mounts.append(value if equals else "".join(following))
            return not equals
        if word in wrapper.folder:
            self.folder = "".join(following)
            return 1
        if equals and name in wrapper.folder:
            self.folder = value
            return 0
        if name in wrapper.program:
            self.program = value if equals else "".join(following)
            return not equals
        if name in wrapper.file:
            self.files.append(value if equals else "".join(following))
            return not equals
        if word in wrapper.values:
            return 1
        if word in wrapper.pairs:
            return 2
        if word.startswith("--") or name in wrapper.text or name in wrapper.replaces:
            if name in wrapper.text:
                return self._read_text(value, following, attached=bool(equals))
            if name in wrapper.replaces:
                self.placeholder = value or "{}"
                return 0 if equals or name.startswith("--") else self._place(name, following)
            return 0
        taken = 0
        for index in range(1, len(word)):
            flag, rest = f"{word[0]}{word[index]}", word[index + 1 :]
            if flag in wrapper.text:
                attached = bool(rest) and not wrapper.script
                words = self._read_text(rest, following, attached=attached)
                if not wrapper.script:
                    return words
            elif flag in wrapper.replaces:
                self.placeholder = rest
                return 0 if rest else self._place(flag, following)
            elif flag in wrapper.mounts:
                self.mounts.append(rest or "".join(following))
                return 0 if rest else 1
            elif flag in wrapper.folder:
                self.folder = rest or "".join(following)
                return 0 if rest else 1
            elif flag in wrapper.values and wrapper.script:
                taken += 1  # `bash -oc pipefail text`
            elif flag in wrapper.values:
                return 0 if rest else 1
            elif flag == "-s" and wrapper.script:
                self.reads_input = True
        return taken

    def _note_folder(self, word: str) -> None:
        self.leaves = self.leaves or leaves_folder(self.wrapper.unknown_folder, (word,))

    def _read_text(self, value: str, following: Sequence[str], *, attached: bool) -> int:
        if self.wrapper.script and not attached:
            self._wants_text = True  # the text is the first operand, after all options
            return 0
        self.texts.append(value if attached else "".join(following))
        return 0 if attached else 1

    def _place(self, name: str, following: Sequence[str]) -> int:
        self.placeholder = "".join(following) or "{}"
        self._may_be_program = name in self.wrapper.attached and bool(following)
        return 1


def _find_in_image(programs: Mapping[str, str], image: str) -> str:
    """Return the program that an image of a container runs; empty if it is not known."""
    folder, slash, name = image.partition("@")[0].rpartition("/")
    name = f"{folder}{slash}{name.partition(':')[0]}"
    owned = "/".join(name.split("/")[-2:])
    return programs.get(owned, "")


def leaves_folder(known: bool | Sequence[str], words: Sequence[str]) -> bool:
    """Whether a program of which the `unknown_folder` is `known` leaves its own with these words.

    An option of one letter counts in a cluster (`sudo -iu bob`), and with its value behind it.
    """
    if isinstance(known, bool):
        return known
    for word in words:
        if word in known or word.partition("=")[0] in known:
            return True
        if word[:1] == "-" != word[1:2] and any(
            one[1] in word for one in known if len(one) == 2 and one != "--"
        ):
            return True
    return False


class CodeOptions(msgspec.Struct):
    """The options of a program that runs code of another language."""

    texts: list[str] = []
    """Code."""
    operands: list[str] = []
    files: list[str] = []
    """Files of code that options name."""
    module: list[str] = []
    """A program with its arguments, as behind `-m` of python."""


def read_code_options(runner: CodeRunner, arguments: Sequence[str]) -> CodeOptions:
    """Read what a program that runs code is given."""
    found = CodeOptions()
    texts = found.texts
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word == "--":
            index += 1
            break
        if word[:1] != "-" or word == "-":
            break
        index += 1
        name, equals, value = word.partition("=")
        following = arguments[index] if index < len(arguments) else ""
        if word.startswith("--") or word in runner.code:
            if name in runner.code:
                texts.append(value if equals else following)
                index += not equals
            elif name in runner.file or name in runner.values:
                if name in runner.file:
                    found.files.append(value if equals else following)
                index += not equals
            continue
        for position in range(1, len(word)):
            flag, rest = f"-{word[position]}", word[position + 1 :]
            if flag in runner.modules and not texts:
                found.module = [*([rest] if rest else ()), *arguments[index:]]
                return found
            if flag in runner.code or flag in runner.file or flag in runner.values:
                if flag in runner.code:
                    texts.append(rest or following)
                if flag in runner.file:
                    found.files.append(rest or following)
                index += not rest
                break
    found.operands = list(arguments[index:])
    return found
