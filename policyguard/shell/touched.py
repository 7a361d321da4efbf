"""Files that the commands of a text name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise, takewhile

import msgspec

from policyguard.shell.addresses import URL
from policyguard.shell.arguments import UNKNOWN_PROGRAM, read_arguments
from policyguard.shell.command_line import (
    ANY,
    GLOB,
    MANY,
    NAME,
    START,
    CommandLine,
    SimpleCommand,
)
from policyguard.shell.files import (
    find_operands,
    find_read,
    find_values,
    find_written,
    is_text,
    normalize,
    reads_all,
    reads_nothing,
)
from policyguard.shell.folders import join_folder
from policyguard.shell.options import WrapperOptions, read_code_options
from policyguard.shell.reader import ShellReader
from policyguard.shell.script.code_reader import is_prose
from policyguard.shell.script.found_names import find_names_of
from policyguard.shell.words import is_static

_ATTACHED = re.compile(r"-[A-Za-z](?=[./~])")
_WITHIN = re.compile(rf"(?:/|\.\.)(?=(?:~|{START})(?:/|\Z)|\./)")
"""What stands before the home or the current folder in a path: `/$HOME/x`, `"/tmp/..$PWD/x"`."""
_LOCAL_URL = re.compile(
    rf"file:(?://(?:localhost|127\.0\.0\.1)?)?(?=[/.~{ANY}{MANY}{NAME}]|\Z)", re.IGNORECASE
)
_SENT = re.compile(r"""(?:[^\s@=;]*=)?[@<]"?([^\s;",@]+)|(?:\S*,)?(?:src|source)=([^\s,]+)""")
"""A file whose content is sent: `field=@file;type=text/plain` of curl, `id=a,src=b` of docker."""
_SENT_AS = re.compile(r"[\w.\[\]-]+@([^\s;@]+)")
"""The same as `field@file`, which may be an address to others."""
_SPACE = re.compile(r"\s")
_NOWHERE = "/dev/null"
_UNKNOWN = re.compile(f"[{ANY}{MANY}]+")
_MAY_BE_UNKNOWN = re.compile(rf"[{ANY}{MANY}]|\.\.")
_UNKNOWN_PLACE = re.compile(rf"\$[A-Za-z_{{(]|[{ANY}{MANY}]|\A{NAME}")
"""With it, a path may be any: a name that was printed is one of a folder that stands before it."""
_RANGE = re.compile(rf"[^/:\s]*[{ANY}{MANY}{NAME}][^/:\s]*\.\.\.?[^/:\s]*")
"""Revisions from one up to another, as `"$A..HEAD"` of git."""
_REVISION = re.compile(r"[^:/\s]*:(?![/~]|\d+\Z)([^:\s]+)")
"""A file in a revision, as `HEAD:.env` of git; not a host with its port."""


class _Command:
    """A command, and what is known about its program."""

    __slots__ = ("arguments", "program", "runs_module", "simple", "wrapper")

    def __init__(self, simple: SimpleCommand, reader: ShellReader) -> None:
        self.runs_module = False
        """Whether it runs a program that is a command of its own, as `python -m pytest` does."""
        runner = reader.code.find(simple.program)
        if runner is not None:
            options = read_code_options(runner, simple.arguments)
            self.runs_module = bool(options.module)
            if all(is_prose(text, runner, simple) for text in options.texts):
                simple = _without_code(simple, options.texts)
        self.simple = simple
        self.program = reader.programs.find(simple.program) or UNKNOWN_PROGRAM
        self.arguments = read_arguments(simple.arguments, self.program)
        self.wrapper = reader.wrappers.find(simple.program)

    @property
    def changes_what_it_finds(self) -> bool:
        """Whether it is a search with an action, such as `find -name x -delete`."""
        return any(word in self.program.changes for word in self.simple.arguments)


def _without_code(command: SimpleCommand, texts: Iterable[str]) -> SimpleCommand:
    """Return a command without words that are code and run nothing: its names stand apart."""
    words = [*command.arguments]
    for text in texts:
        if text in words:
            words.remove(text)
    return msgspec.structs.replace(command, arguments=tuple(words))


def find_paths(line: CommandLine, reader: ShellReader) -> Iterator[str]:
    """Yield the paths that the commands of a text name: words and targets of redirections.

    A redirection to `/dev/null` names none. They are relative to the folder in which the text
    starts; unknown parts stay marked. A path after a `cd` that may not have happened is yielded
    for each folder that it may be in.
    """
    for simple in line.commands:
        command = _Command(simple, reader)
        folders = _add_own(simple.folders, command)
        touched = dict.fromkeys(_find_touched(command, reader))
        for path in touched:
            yield from _place(path, folders)
        for path in dict.fromkeys(_find_named(command, reader)):
            if path in touched:
                continue
            for place in _place(path, folders):
                if _MAY_BE_UNKNOWN.search(place) and reads_nothing(
                    command.program, command.arguments
                ):
                    yield from _name_unknown(place)
                else:
                    yield place


def _place(path: str, folders: tuple[str, ...]) -> Iterator[str]:
    """Yield what a path is from where the text starts, for each folder that it may be in."""
    for folder in folders:
        yield join_folder(folder, path)
    if "~" not in path and "./" not in path:
        return
    for match in _WITHIN.finditer(path):
        yield join_folder("", path[match.end() :])


def _add_own(folders: tuple[str, ...], command: _Command) -> tuple[str, ...]:
    """Return the folders that a command may work in: with those of its options, as `git -C`.

    Unknown ones count where it reads what it names, whether it belongs to a project or not.
    """
    program, arguments = command.program, command.arguments
    if not program.folder:
        return folders
    own = [
        value
        for value in find_values(program.folder, arguments)
        if is_static(value) or reads_all(program, arguments)
    ]
    return (*folders, *(join_folder(folder, value) for value in own for folder in folders))


def find_paths_of(line: CommandLine, reader: ShellReader, chosen: Collection[int]) -> Iterator[str]:
    """Yield what `find_paths` does, of the commands with the indices `chosen` alone.

    Commands that wrote files which they name belong to them. Where a path of theirs is not written
    out, it may come from any command, and all paths are yielded. A chosen command that names none
    works on its folder (`find -delete`): that is yielded.
    """
    commands = [_Command(simple, reader) for simple in line.commands]
    own = [[*_find_touched(each, reader), *_find_named(each, reader)] for each in commands]
    if chosen and all(
        own[index] and not any(map(_UNKNOWN_PLACE.search, own[index])) for index in chosen
    ):
        involved = _with_sources(line, chosen, reader)
        own = [paths if index in involved else [] for index, paths in enumerate(own)]
    for index in chosen:
        if not (own[index] or _names_files_in_code(line, index)):
            own[index] = ["."]
    for paths, command in zip(own, commands, strict=True):
        folders = _add_own(command.simple.folders, command)
        for path in dict.fromkeys(paths):
            yield from _place(path, folders)


def _with_sources(line: CommandLine, chosen: Collection[int], reader: ShellReader) -> set[int]:
    """Return the commands with those that tell which files they mean, or have made these."""
    involved: set[int] = set()
    pending = list(chosen)
    while pending:
        index = pending.pop()
        if index in involved:
            continue
        involved.add(index)
        command = line.commands[index]
        wrappers = map(reader.wrappers.find, command.wrappers)
        if any(wrapper is not None and wrapper.appends for wrapper in wrappers):
            continue  # what xargs reads is among the words
        program = reader.programs.find(command.program)
        reads_none = program is not None and program.input == "none"
        says_all = reads_none and not any(map(_UNKNOWN.search, command.arguments))
        pending += (
            source
            for source in command.sources
            if not says_all or _may_make_files(line.commands[source], reader)
        )
    return involved


def _may_make_files(command: SimpleCommand, reader: ShellReader) -> bool:
    program = reader.programs.find(command.program)
    only_prints = program is not None and program.read_only is True
    return not only_prints or any(redirect.writes for redirect in command.redirects)


def _names_files_in_code(line: CommandLine, index: int) -> bool:
    """Whether a command is run by code that names files."""
    around = set(line.commands[index].wrappers)
    return any(
        not other.path and other.arguments and around.intersection(other.wrappers)
        for other in line.commands
    )


def _find_touched(command: _Command, reader: ShellReader) -> Iterator[str]:
    """Yield the files that a command reads, writes or runs."""
    parts = simple, program, arguments = command.simple, command.program, command.arguments
    runs_another = command.wrapper is not None or command.runs_module
    is_silenced = any(redirect.target == _NOWHERE for redirect in simple.redirects)
    for path in (
        *(redirect.target for redirect in simple.redirects if runs_another),
        *(find_values(program.loads, arguments) if runs_another else find_read(*parts)),
        *(() if runs_another else find_written(*parts)),
    ):
        path = _LOCAL_URL.sub("", path)
        if not (URL.match(path) or (is_silenced and path == _NOWHERE)):
            yield path
    if "/" in simple.path and is_static(simple.path):
        folder = simple.path.rpartition("/")[0]
        if folder not in reader.folders:
            yield simple.path


def _find_named(command: _Command, reader: ShellReader) -> Iterator[str]:
    """Yield the paths that the arguments of a command name, whatever it does with them."""
    simple, wrapper = command.simple, command.wrapper
    operands = _own_operands(command, reader)
    for word in (_LOCAL_URL.sub("", operand) for operand in operands):
        if URL.match(word):
            continue
        is_range = ".." in word and command.program.reads == "none" and _RANGE.fullmatch(word)
        yield from _find_sent(word, command)
        if word.strip(MANY + ANY) and not is_range:
            yield word
            if revision := _REVISION.fullmatch(word):
                yield revision[1]
        else:  # most programs do not read it
            yield from _name_unknown(word)
    yield from _find_wrapper_values(command, reader)
    if wrapper is not None and wrapper.names:
        if command.changes_what_it_finds:
            yield from find_names_of(wrapper, simple.arguments, command.program.changes)
    elif operands:
        for option in command.arguments.options:
            value = option.value
            if value is None:
                attached = _ATTACHED.match(option.text)
                value = option.text[attached.end() :] if attached else None
            yield from _find_sent(value or "", command)
            if value and _is_path(value) and not is_text(option, command.program):
                yield value


def _find_sent(word: str, command: _Command) -> Iterator[str]:
    """Yield the file that a field of a form names."""
    match = _SENT.match(word) if "@" in word or "=" in word else None
    if match is None and command.program.connects in ("operands", "first"):
        match = _SENT_AS.fullmatch(word)
    if match is not None:
        yield match[match.lastindex or 0]


def _name_unknown(path: str) -> tuple[str, ...]:
    """Return what stands for a path with unknown text: some name in it, and one elsewhere."""
    place = normalize(path)
    unknown = _UNKNOWN.search(place)
    if unknown is None:
        return (path,)
    return (_UNKNOWN.sub(NAME, place), "/" + _UNKNOWN.sub(NAME, place[unknown.start() :]))


def _find_wrapper_values(command: _Command, reader: ShellReader) -> Iterator[str]:
    """Yield the paths in the options of a wrapper: `--env-file .env`, `-v /srv:/data`."""
    arguments = command.simple.arguments
    _, wrapper, words = reader.wrappers.find_for(command.simple.program, arguments)
    if wrapper is None or wrapper.names:
        return
    before = arguments[: len(arguments) - len(words)]
    options = (*before, *words[: WrapperOptions(wrapper).read(words)])
    for previous, word in pairwise(("", *options)):
        if previous in command.program.prose:
            continue
        value = word.partition("=")[2] if word[:1] == "-" else word.partition(":")[0]
        if value and _is_path(value) and not _SPACE.search(value):
            yield value


def _is_path(value: str) -> bool:
    is_path = is_static(value) and ("/" in value or value[0] in ".~")
    return is_path and not URL.match(value)


def _own_operands(command: _Command, reader: ShellReader) -> Sequence[str]:
    """Return the operands that may name files; those of a wrapped command are found there."""
    simple, program, arguments = command.simple, command.program, command.arguments
    if program.prints or command.runs_module:
        return ()
    wrapper = reader.wrappers.find_for(simple.program, simple.arguments)[1]
    if wrapper is None:
        return find_operands(program, arguments)
    if wrapper.text and not (wrapper.script or wrapper.starts_shell or wrapper.joins):
        return find_operands(program, arguments)[: wrapper.operands]
    if wrapper.after:
        if wrapper.names and command.changes_what_it_finds:
            return ()
        return tuple(takewhile(lambda word: word[:1] not in "-(!", simple.arguments))
    if (wrapper.script or wrapper.sources) and not any(
        option.text in wrapper.text or option.text[-1:] == "c" for option in arguments.options
    ):
        return arguments.operands[:1]
    return ()


def has_unknown_folder(path: str) -> bool:
    """Whether unknown text in `path` may lead anywhere: it is more than a name in a folder."""
    if ANY in path or MANY in path:
        return True
    return GLOB not in path and path == NAME
