"""What `${name%pattern}` and the like make of a value.

A pattern is text, with a star before or behind it. Of a value of which a part is unknown, the
result is known where that part cannot matter; else it is something unknown of the same kind.
"""

from __future__ import annotations

import re

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.shell.command_line import ANY, GLOB, MANY, MARKS, NAME, START
from policyguard.shell.words import is_static

_TEXT = r"(?:[\w.=@+:, /-]|\\[^\n])*"
_PART = r"(?:[\w.=@+:, -]|\\[^\n])+"
_CHANGE = lazy_pattern(
    rf"(?:(?P<cut>%%?|##?)(?P<before>\*?)(?P<text>{_TEXT})(?P<behind>\*?)"
    rf"|(?P<replace>//|/[%#]?)(?P<old>{_PART})(?:/(?P<new>{_TEXT}))?"
    r"|(?P<case>\^\^?|,,?)"
    r"|: ?(?P<start>\d{1,4})(?::(?P<length>\d{1,4}))?)\}"
)
_MARK = lazy_pattern(f"[{MARKS}]")
_ESCAPE = re.compile(r"\\(.)")
_PLACES = (START, "~")
"""With these begin values of which the first folders are not written out: `$PWD`, `$HOME`."""


def change(value: str, operation: str) -> str:
    """Return what `${name` and an operation with its brace stand for, where `name` has `value`."""
    found = _CHANGE.fullmatch(operation)
    if found is None or MANY in value:
        return MANY
    if value == START and operation == "##*/}":
        return NAME
    place = next((each for each in _PLACES if value[: len(each)] == each), "")
    if value[len(place) : len(place) + 1] not in ("", "/"):
        place = ""
    if START in value[len(place) :]:
        return MANY
    if not place:
        changed = _change(value, found)
        return _blur(value, found) if changed is None else changed
    changed = _change(ANY + value[len(place) :], found)
    if changed is None:
        return MANY
    return place + changed[1:] if changed[:1] == ANY else changed


def _change(value: str, found: re.Match[str]) -> str | None:
    """Return what a value becomes; None if that depends on what is unknown of it."""
    if found["cut"]:
        return _cut(value, found["cut"], found["before"], _unescape(found["text"]), found["behind"])
    if found["replace"] in ("/%", "/#"):
        old = _unescape(found["old"])
        cut = _cut(value, "%" if found["replace"] == "/%" else "#", "", old, "")
        if cut is None or cut == value:
            return cut
        new = _unescape(found["new"] or "")
        return cut + new if found["replace"] == "/%" else new + cut
    if not is_static(value):
        return None
    if found["replace"]:
        count = -1 if found["replace"] == "//" else 1
        return value.replace(_unescape(found["old"]), _unescape(found["new"] or ""), count)
    if found["case"]:
        return _change_case(value, found["case"]) if value.isascii() else None
    if not value.isascii():
        return None
    start, length = int(found["start"]), found["length"]
    return value[start:] if length is None else value[start : start + int(length)]


def _cut(value: str, operator: str, before: str, text: str, behind: str) -> str | None:
    """Return a value without what `%`, `%%`, `#` or `##` cuts away, if that is known."""
    if not text or (before and behind):
        return None
    unknown = [match.start() for match in _MARK.finditer(value)]
    if text == "/":
        unknown = [at for at in unknown if value[at] != GLOB]
    head = value[: unknown[0]] if unknown else value
    tail = value[unknown[-1] + 1 :] if unknown else value
    if operator[0] == "%" and not before:
        if not behind:
            if tail.endswith(text):
                rest = value[: -len(text)]
                is_sure = text[0] == "." or rest.rpartition("/")[2].strip(GLOB)
                return rest if is_sure or not unknown else None  # `*_a` may be `_a` alone
            return None if unknown and text.endswith(tail) else value
        at = len(value) - len(tail) + tail.rfind(text) if operator == "%" and text in tail else -1
        if operator == "%%":
            at = head.find(text)
        return value[:at] if at >= 0 else None if unknown else value
    if operator[0] == "#" and not behind:
        if not before:
            if head.startswith(text):
                return value[len(text) :]
            return None if unknown and text.startswith(head) else value
        at = head.find(text) if operator == "#" else -1
        if operator == "##" and text in tail:
            at = len(value) - len(tail) + tail.rfind(text)
        return value[at + len(text) :] if at >= 0 else None if unknown else value
    return None


def _blur(value: str, found: re.Match[str]) -> str:
    """Return what is known of a changed value if it depends on what is unknown of the value."""
    folder, slash, name = value.rpartition("/")
    if found["cut"] == "##" and found["before"] and found["text"] == "/":
        return GLOB if value[-1:] == NAME else MANY  # the last part of a path
    if found["cut"] == "%" and found["text"] == "/" and not found["before"] + found["behind"]:
        return value  # with a slash behind it, it is the same
    starts_no_option = value[:1] != "-"
    if found["cut"] or found["replace"]:
        text, new = _unescape(found["text"] or found["old"] or ""), found["new"]
        keeps_name = (new or "").isalnum() if new is not None else text[:1] == "."
        keeps_name = keeps_name and (found["cut"] or "%")[0] == "%"
        is_within = is_static(folder) and text not in folder and "/" not in text
        if keeps_name and is_within and _MARK.findall(name) == [GLOB] and name[0] != ".":
            return f"{folder}{slash}{GLOB}" if starts_no_option else MANY
        return ANY if (found["cut"] or "#")[0] == "%" and starts_no_option else MANY
    if found["case"]:
        return _change_case(value, found["case"]) if _MARK.findall(value) == [GLOB] else ANY
    return ANY if found["start"] == "0" and starts_no_option else MANY


def _change_case(value: str, operator: str) -> str:
    convert = str.upper if operator[0] == "^" else str.lower
    return convert(value) if len(operator) == 2 else convert(value[:1]) + value[1:]


def _unescape(text: str) -> str:
    return _ESCAPE.sub(r"\1", text)
