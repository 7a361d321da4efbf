"""Likeness: whether two calls, or two results, differ in nothing that matters to a loop.

Looser than identity (see `fingerprint`): limits tell calls by it, approvals and bans never do. A
call's likeness leaves out arguments that only explain it, and how its command is written; that of a
result masks what differs each time, such as times and ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from policyguard.engines.lazy_pattern import lazy_pattern
from policyguard.engines.line_order import sort_parts
from policyguard.engines.regex import Regex

MASKS = {
    "times": (
        r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?\b"
        r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? \d{1,2} [A-Z][a-z]{2} \d{4}\b"
        r"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* +\d{1,2}\b(?:,? \d{4}\b)?"
        r"|\b\d\d?\.? [A-Z][a-zäéû]{2,8}\.? 20\d\d\b|\b\d\d?(?:/\d\d?/|\.\d\d?\.)20\d\d\b"
        r"|\b20\d\d/\d\d?/\d\d?\b|20\d\d年\d\d?月\d\d?日|\d\d?[時时点]\d\d?分(?:\d\d?秒)?"
        r"|\b\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?: ?[AaPp][Mm])?\b|\b1[6-9]\d{8}(?:\d{3}|\.\d+)?\b"
        r"|\b\d\d/[A-Z][a-z]{2}/20\d\d(?::\d\d){3} [+-]\d{4}\b|(?m:^\[ *\d+\.\d{6}\])"
        r"|(?i:\b\d+ (?:seconds?|minutes?|hours?|days?|weeks?|months?) ago\b)"
        r"|(?i:\bvor \d+ (?:Sekunden?|Minuten?|Stunden?|Tage?n?|Wochen?|Monate?n?)\b)"
        r"|\b\d\d? de [a-zç]{4,10}(?: de 20\d\d)?\b|\b\d\d? [а-я]{3,8}(?: 20\d\d(?: г\.)?)?"
        r"|20\d\d년 ?\d\d?월 ?\d\d?일"
    ),
    "durations": (
        r"\b\d+(?:[.,]\d+)? ?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?|hours?"
        r"|Sekunden?|Minuten?|Stunden?|secondes?|heures?|segundos?|minutos?|horas?)\b"
        r"|\d+(?:[.,]\d+)? ?(?:毫秒|ミリ秒|秒|分钟|分間|小时|時間)"
        r"|\b\d+m ?\d+(?:\.\d+)?s\b|\b\d+[dhm](?:\d+[hms])*\b"
    ),
    "ids": (
        r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
        r"|\b[a-fA-F]{7,64}\b|\b\d{10,64}\b"
        r"|(?i:\b\w{0,20}(?:id|ref|number)\b[\"']?[ =:#]{0,3}[\"']?\d{7,9}\b)"
        r"|\b\w{0,3}(?:\d[A-Za-z]|[A-Za-z]\d)\w{4,}\b|\b\w{4,}(?:\d[A-Za-z]|[A-Za-z]\d)\w*\b"
        r"|\[ref=\w+\]|\beyJ[\w-]{8,}\.[\w.-]{8,}"
    ),
    "pids": (
        r"(?i:\bpid|\bprocess(?: id)?|\bseed|\bgoroutine|\bthread)[ =:#-]{0,3}\d+"
        r"|\[\d{2,7}\]|\[gw\d{1,3}\]|(?m:^==\d+==)|\(node:\d+\)"
        r"|(?m:^[\w.+-]+ +\d+ +\d+\.\d +\d+\.\d)"
    ),
    "temp_names": r"(?:/var)?/(?:tmp|folders)/[\w.+-]+(?:/[\w.+-]*\d)?|\btmp\w{6,}\b",
    "addresses": (
        r"\b0x[0-9a-fA-F]+\b|\b(?:\d{1,3}\.){3}\d{1,3}\b(?::\d+)?|\blocalhost:\d+|(?i:\bport )\d+"
    ),
    "counters": (
        r"(?i:\b(?:(?:attempt|poll|check|retry|view|request|query|visit)[ _-]?(?:count|number|no)"
        r"|attempt|try|tries|retry|retries|poll|check|iteration|view|(?:icmp_)?seq)s?\b)"
        r"[\"']?[ #:=(]{0,3}\d+"
        r"|(?i:\b(?:requests|queries|calls|views|visits)[ _-](?:today|made|so[ _-]far)\b"
        r"[\"']?[ :=]{0,3}\d+)"
        r"|(?i:\b(?:polled|checked|tried|asked|viewed) \d+ times\b)"
        r"|\b\d+(?:st|nd|rd|th) (?:attempt|try|check|poll)\b"
    ),
    "usage": (
        r"\bup \d+ days?\b|(?i:\bload averages?: )[\d., ]+"
        r"|(?i:\b(?:rss|heap|memory|mem)(?: (?:used|usage|size))?"
        r"[\"']?[ :=]{1,3}\d+(?:[.,]\d+)? ?[kmg]i?b?\b)"
    ),
}
"""What `classify.likeness.results.mask` names, as RE2 patterns."""
_COUNTDOWN = (
    r"(?i)\d ?(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?) (?:left|remaining|to go)\b"
    r"|\d:\d\d (?:left|remaining|to go)\b"
    r"|\b(?:eta|left|remaining)(?: time)?[\"' ]{0,2}[:=]? ?[\"'~]?(?:in |about )?\d"
    r"|\b(?:noch|verbleibend|restant|quedan)\w{0,2}:? \d|\d \w{1,8} (?:verbleibend|restant)"
    r"|(?:剩余|还剩|还有|残り|あと)[^\d]{0,6}\d"
)
"""A time that is left: what changes in such a result is the progress."""
_DECORATION = r"\x1b\[[0-9;?]*[A-Za-z]|[\x{2800}-\x{28ff}]"
"""Colours, and what turns while a program works."""
_MAX_MASKED_CHARS = 32768
"""Characters at the head, and at the tail, of a result in which variable parts are masked."""
_PREFIX = lazy_pattern(
    r"(?:cd (?>(?:[^\s;&|<>$`()]| (?!&))+) && |timeout (?>(?:-\S++ )*)[\d.]++[smhd]? |time "
    r"|nice (?:-n -?\d++ )?|sudo |env |[A-Z_][A-Z0-9_]*+=[^\s;&|$`'\"]*+ )"
)
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[\w.+-]*\d[\w.+-]*)"""
_LETTER = lazy_pattern(r"[^\W_]")
_WORD = lazy_pattern(r"\w+")
_MASKED_WORDS = lazy_pattern(r"#(?:\W*#)+")
_MIN_ECHO_CHARS = 3
_MAX_ECHO_CHARS = 1024
"""Length of results in which echoed words are masked, and of arguments in which they are found."""
_MAX_ECHO_ARGS = 32
_SQL_COMMENT = lazy_pattern(r"(?<!\S)-- [^\n]*+|/\*(?>(?:[^*]|\*(?!/))*)\*/")
_PREFIX_WORDS = ("cd ", "timeout ", "time ", "nice ", "sudo ", "env ")
_TEXT_OPTIONS = ("-c", "-lc")
_MAX_PREFIXES = 8


class CallLikeness:
    """Tells calls that are alike.

    `ignore` and `fold` name arguments: those that make no difference beside others, and those
    compared without case, white space and `./`. `commands` names the arguments that hold a shell
    command, whose comments, spacing and harmless prefixes make no difference.
    """

    def __init__(
        self,
        fingerprint_call: Callable[[str, str, dict[str, Any]], tuple[str, Any, Any]],
        *,
        ignore: Iterable[str],
        fold: Iterable[str],
        commands: Iterable[str],
    ) -> None:
        self._fingerprint_call = fingerprint_call
        normalizers: dict[str, Callable[[Any], Any]] = dict.fromkeys(fold, _fold_text)
        normalizers |= dict.fromkeys(commands, normalize_command)
        self._normalizers = normalizers | dict.fromkeys(ignore, _leave_out)

    def find(self, tool: str, server: str, args: dict[str, Any], fingerprint: str) -> str:
        """Return the likeness of a call; its fingerprint where nothing is left out."""
        normalizers = self._normalizers
        changed: dict[str, Any] | None = None
        for name in args:
            if name in normalizers:
                value = args[name]
                new = normalizers[name](value)
                if new is not value and new != value:
                    changed = changed or {}
                    changed[name] = new
        if changed is None or all(normalizers.get(name) is _leave_out for name in args):
            return fingerprint  # of a tool to think with, what is left out is all it has
        kept = {**args, **changed}
        for name, new in changed.items():
            if new is None:
                del kept[name]
        return self._fingerprint_call(tool, server, kept)[0]


def _leave_out(value: Any) -> None:
    """Return None for every value of an argument."""


class ResultLikeness:
    """Fingerprints results with their variable parts masked.

    `mask` names kinds of variable parts (see `MASKS`), `ignore` fields of JSON results, `nothing`
    what results say that found nothing. With `ignores_order` the order of lines, and of items in
    lists, makes no difference. The first result compiles the patterns.
    """

    def __init__(
        self,
        fingerprint_text: Callable[[str], str],
        *,
        mask: Iterable[str],
        ignore: Iterable[str],
        nothing: Iterable[str],
        ignores_order: bool,
    ) -> None:
        self._ignores_order = ignores_order
        self._fingerprint_text = fingerprint_text
        phrases = [phrase.casefold() for phrase in nothing if phrase.strip()]
        self._nothing = tuple("".join(phrase.split()) for phrase in phrases)
        self.nothing_words = _drop_longer({min(phrase.split(), key=len) for phrase in phrases})
        self.nothing_chars = _MAX_ECHO_CHARS
        """A longer text, or one that is without any of the words, found something."""
        names = "|".join(re.escape(name).replace("_", "[_-]?") for name in ignore)
        fields = rf"""["']?(?i:\b(?:{names}))["']?\s*[:=]\s*{_VALUE}""" if names else ""
        patterns = [fields, *(MASKS[kind] for kind in mask)]
        self._pattern = "|".join(part for part in patterns if part)

    @cached_property
    def _mask(self) -> Regex | None:
        return Regex(self._pattern) if self._pattern else None

    @cached_property
    def _countdown(self) -> Regex:
        return Regex(_COUNTDOWN)

    @cached_property
    def _decoration(self) -> Regex:
        return Regex(_DECORATION)

    def __call__(self, text: str, in_order: bool) -> str:
        """Return the fingerprint of a result; one `in_order` is compared in its order, too."""
        masked = self._mask_parts(text)
        if self._ignores_order and not in_order:
            masked = sort_parts(masked)
        return self._fingerprint_text(masked)

    def _mask_parts(self, text: str) -> str:
        """Return a result with `#` for its variable parts; of a long one, only the ends are masked.

        Nothing is masked in a result that consists of variable parts, nor in a countdown.
        """
        if self._mask is None:
            return text
        if "\x1b" in text or not text.isascii():
            text = self._decoration.replace(text, "")
        if len(text) <= 2 * _MAX_MASKED_CHARS:
            masked = self._mask.replace(text, "#")
            if masked != text and (not _LETTER.search(masked) or self._countdown.search(text)):
                return text
            return masked
        head, middle, tail = (
            text[:_MAX_MASKED_CHARS],
            text[_MAX_MASKED_CHARS:-_MAX_MASKED_CHARS],
            text[-_MAX_MASKED_CHARS:],
        )
        parts = self._mask.replace(head, "#"), middle, self._mask.replace(tail, "#")
        return "\0".join(parts)

    def mask_echo(self, text: str, args: dict[str, Any]) -> str:
        """Return a result that found nothing, with `#` for the words and numbers of its call.

        Return an empty string for any other result.
        """
        if len(text) > _MAX_ECHO_CHARS:
            return ""
        squeezed = "".join(text.casefold().split())
        if not any(map(squeezed.__contains__, self._nothing)):
            return ""
        values = [value for value in args.values() if type(value) is str][:_MAX_ECHO_ARGS]
        words = _WORD.findall(" ".join(values)[:_MAX_ECHO_CHARS])
        masked = text
        for part in sorted({*values, *words}, key=lambda part: (-len(part), part)):
            if len(part) >= _MIN_ECHO_CHARS:
                masked = masked.replace(part, "#")
        numbers = {str(value) for value in args.values() if _is_whole(value)}
        if numbers:
            masked = _WORD.sub(lambda word: "#" if word[0] in numbers else word[0], masked)
        return masked


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number, or a text of one."""
    return type(value) is int or (type(value) is str and value.isdecimal())


def mask_call_words(text: str, args: dict[str, Any]) -> str:
    """Return a result with one `#` for each run of words that its call has, too.

    Return an empty string for a long result, and for one that holds no word of its call.
    """
    if len(text) > _MAX_ECHO_CHARS:
        return ""
    values = [value for value in args.values() if type(value) is str][:_MAX_ECHO_ARGS]
    words = set(_WORD.findall(" ".join(values)[:_MAX_ECHO_CHARS].casefold()))
    masked = _WORD.sub(lambda word: "#" if word[0].casefold() in words else word[0], text)
    return "" if masked == text else _MASKED_WORDS.sub("#", masked).strip()


def _drop_longer(words: set[str]) -> tuple[str, ...]:
    """Drop each word that holds another: a text with it holds the other, too."""
    return tuple(
        word for word in sorted(words) if not any(one != word and one in word for one in words)
    )


def normalize_command(command: Any) -> Any:
    """Return a shell command without comments, surplus space and harmless prefixes.

    Only for comparison: the result need not be a command. Of a list such as `[bash, -lc, "…"]` the
    text is meant. Any other value is returned unchanged.
    """
    if type(command) is not str:
        if type(command) is list and len(command) > 2 and command[-2] in _TEXT_OPTIONS:
            return [*command[:-1], normalize_command(command[-1])]
        return command
    if "#" in command:
        command = _without_comments(command)
    if "  " in command or "\n" in command or "\t" in command or command != command.strip():
        command = " ".join(command.split())
    if command.startswith(_PREFIX_WORDS) or command[:1].isupper():
        for _ in range(_MAX_PREFIXES):
            found = _PREFIX.match(command)
            if found is None:
                break
            command = command[found.end() :]
    return _without_dots(command) if "./" in command else command


def _without_comments(command: str) -> str:
    """Drop each `#` outside quotes that begins a word, and what follows on its line."""
    kept: list[str] = []
    quote = ""
    before = " "
    is_comment = False
    for char in command:
        if is_comment:
            is_comment = char != "\n"
        elif quote:
            quote = "" if char == quote and before != "\\" else quote
        elif char == "#" and before.isspace():
            is_comment = True
        elif char in "'\"" and before != "\\":
            quote = char
        if not is_comment:
            kept.append(char)
        before = char
    return "".join(kept)


def _without_dots(text: str) -> str:
    """Drop `./` at the beginning of words."""
    return " ".join(
        word.lstrip("./") if word.startswith("./") else word for word in text.split(" ")
    )


def _fold_text(text: Any) -> Any:
    if type(text) is not str:
        return text
    folded = text.casefold()
    # Single characters are quick to look for, and nearly all texts have none of these.
    if "#" in folded and "# " in folded:
        folded = _without_comments(folded)
    if ("-" in folded and "-- " in folded) or ("*" in folded and "/*" in folded):
        folded = _SQL_COMMENT.sub("", folded)
    # Of white space, only the plain space is printable.
    if "  " in folded or not folded.isprintable() or folded != folded.strip(" "):
        folded = " ".join(folded.split())
    return _without_dots(folded) if "/" in folded and "./" in folded else folded
