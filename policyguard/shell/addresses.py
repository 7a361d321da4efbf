"""Addresses that the commands of a text name: URLs, and hosts that programs connect to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from policyguard.model.shell import Program
from policyguard.shell.arguments import UNKNOWN_PROGRAM, Arguments, Option, read_arguments
from policyguard.shell.command_line import ANY, MANY, CommandLine
from policyguard.shell.reader import ShellReader
from policyguard.shell.words import is_static

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SPACE = re.compile(r"\s")
_URL_HOST = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/?#\x00-\x08]+)(?:[/?#]|\Z)")
_REMOTE = re.compile(r"(?:[^@/:\s]+@)?(\[[^\]]+\]|[^@/:\s\[\]]+):(?!//)")
_HOST = re.compile(r"(?:[^@/\s]+@)?(\[[^\]]+\]|[^@/\s]+)")
_NETWORK_FILE = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/([^/]+)")


def find_urls(line: CommandLine, reader: ShellReader) -> Iterator[str]:
    """Yield the addresses that commands name: URLs, and hosts of programs that connect to them.

    One of which the host is not known has a mark in it.
    """
    for command in line.commands:
        if command.path == MANY:
            yield MANY
            continue
        program = reader.programs.find(command.program) or UNKNOWN_PROGRAM
        arguments = read_arguments(command.arguments, program)
        yield from _find_own_urls(arguments, program)
        for redirect in command.redirects:
            if address := _NETWORK_FILE.fullmatch(redirect.target):
                yield f"tcp://{address[1]}:{address[2]}"


def _find_own_urls(arguments: Arguments, program: Program) -> Iterator[str]:
    values = [option.value for option in arguments.options if option.value is not None]
    for word in (*arguments.operands, *values):
        start = URL.search(word)
        if start is not None and not program.prints and not _SPACE.search(word):
            yield _cut(word[start.start() :])
    options = arguments.options
    if program.connects == "first" and len(arguments.operands) > 1:
        options = options[: arguments.options_before[1]]  # others are those of a command there
    hosts = [
        f"[{host}]" if host.count(":") > 1 and host[0] != "[" else host
        for option in options
        for value in [_find_value(option, program)]
        for host in ("" if value[:1] == "/" else value.rpartition("/")[2]).split(",")
        if host and host != "none"
    ]
    if program.connects in ("operands", "first"):
        hosts += arguments.operands[: 1 if program.connects == "first" else None]
    for word in hosts:
        if not URL.search(word):
            host = _HOST.match(word)
            yield f"{program.scheme}://{host[1] if host else word}"
    if program.connects == "remotes":
        for word in _find_possible_remotes(arguments, program):
            remote = None if URL.search(word) else _REMOTE.match(word)
            if remote is not None:
                yield f"{program.scheme}://{remote[1]}"
            elif not word.strip(MANY + ANY):
                yield word


def _find_value(option: Option, program: Program) -> str:
    """Return the host in an option, which may be one of a cluster (`-vJ host`); empty if none."""
    text = option.text
    if text in program.connects_by:
        return option.value or ""
    if text[:2] == "--" or program.long or not program.connects_by:
        return ""
    for index, letter in enumerate(text[1:], 2):
        if f"-{letter}" in program.connects_by:
            return text[index:] or option.value or ""
        if f"-{letter}" in program.values or not program.values:
            return ""
    return ""


def _find_possible_remotes(arguments: Arguments, program: Program) -> Sequence[str]:
    operands = arguments.operands
    if not operands or operands[0] in program.offline:
        return ()
    flags = program.refspecs.get(operands[0])
    options = arguments.options[arguments.options_before[0] :]
    if flags is None or arguments.has_more or any(option.text not in flags for option in options):
        return operands
    return operands[1:2]


def _cut(url: str) -> str:
    """Return a URL up to its host where something behind that is not known."""
    known = _URL_HOST.match(url)
    return url if is_static(url) or known is None else known[1]
