r"""RE2, the only regular expression engine that policyguard runs on text from outside.

RE2 is linear in the text: no pattern and no input can make it backtrack. This is the only module
that imports `re2`, when the first pattern is compiled: a first check may need none. Its surprises,
each with a test in `tests/engines/test_regex.py`:

- `Set.Match` returns the matching ids *unordered*: the first match is `min(ids)`.
- A `Set` that runs out of memory while it searches returns nothing, as if nothing matched
  (re2/set.h). So `\z`, which always matches, is last in every set; if it is missing, the patterns
  are tried one by one.
- A `str` with a lone surrogate raises. Texts are passed as UTF-8 with `?` in its place, one byte
  per code point, so that positions still agree.
- The Python wrapper costs five times as much as the match. `search` calls the compiled object that
  the wrapper holds; captures are off, because they are not used.
- Error messages are bytes, and RE2 also prints them unless `log_errors` is off.
- `Set.Add` does not give a reason for rejecting a pattern; compiling the pattern alone does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

_NO_SPAN = (-1, -1)
_CONTINUATION_BYTES = range(0x80, 0xC0)
_UNSUPPORTED_SYNTAX = ("(?", *(f"\\{name}" for name in "123456789k"))


class RegexError(ValueError):
    """A pattern that RE2 rejects; `reason` is RE2's message, `help` the unsupported syntax."""

    def __init__(self, pattern: str, reason: str) -> None:
        super().__init__(f"`{pattern}` is not a regular expression: {reason}")
        self.pattern = pattern
        self.reason = reason
        unsupported = any(part in reason for part in _UNSUPPORTED_SYNTAX)
        self.help = "RE2 has no look-around and no back-references" if unsupported else None


class Regex:
    """A compiled pattern. Immutable, and safe to share between threads."""

    __slots__ = ("_anywhere", "_match", "pattern")

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`; raise `RegexError` if it is invalid."""
        self.pattern = pattern
        self._match = _compile(pattern)._regexp.Match
        self._anywhere = _unanchored()

    def __repr__(self) -> str:
        return f"Regex({self.pattern!r})"

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in `text`."""
        data = text.encode("utf-8", "replace")
        matches: bool = self._match(self._anywhere, data, 0, len(data))[0] != _NO_SPAN
        return matches

    def find_span(self, text: str) -> tuple[int, int] | None:
        """Return the start and end of the leftmost match, in code points; None if there is none."""
        data = text.encode("utf-8", "replace")
        start, end = self._match(self._anywhere, data, 0, len(data))[0]
        if start < 0:
            return None
        before = _count_code_points(data[:start])
        return before, before + _count_code_points(data[start:end])

    def find_all(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the matches in UTF-8 from left to right, as offsets; none overlap or are empty."""
        match, anywhere, size, position = self._match, self._anywhere, len(data), 0
        while position < size:
            start, end = match(anywhere, data, position, size)[0]
            if start < 0:
                return
            if end > start:
                yield start, end
            position = end if end > start else _next_code_point(data, end)

    def replace(self, text: str, replacement: str) -> str:
        """Return `text` with every match replaced by the literal `replacement`.

        Lone surrogates become `?`, unless nothing matches: then `text` itself is returned.
        """
        data = text.encode("utf-8", "replace")
        new = replacement.encode("utf-8", "replace")
        match, anywhere = self._match, self._anywhere
        size = len(data)
        chunks: list[bytes] = []
        copied = position = 0
        while position <= size:
            start, end = match(anywhere, data, position, size)[0]
            if start < 0:
                break
            chunks += (data[copied:start], new)
            copied = end
            position = end if end > start else _next_code_point(data, end)
        if not chunks:
            return text
        chunks.append(data[copied:])
        return b"".join(chunks).decode("utf-8", "replace")


class GroupRegex:
    """A compiled pattern of which the first group is wanted."""

    __slots__ = ("_anywhere", "_match")

    def __init__(self, pattern: str) -> None:
        """Compile `pattern`; raise `RegexError` if it is invalid."""
        self._match = _compile(pattern, captures=True)._regexp.Match
        self._anywhere = _unanchored()

    def find(self, text: str) -> str | None:
        """Return what the first group matched, the whole match where the pattern has no group."""
        data = text.encode("utf-8", "replace")
        spans = self._match(self._anywhere, data, 0, len(data))
        start, end = spans[1] if len(spans) > 1 else spans[0]
        return None if start < 0 else data[start:end].decode("utf-8", "replace")


class RegexSet:
    """Many patterns searched in one pass; the first match in list order wins.

    The cost grows with the text, not with the number of patterns. Of a text longer than `head +
    tail` characters only the first `head` and last `tail` are searched: an error's cause is at its
    beginning or end, and a tool's output may have any length.
    """

    __slots__ = (
        "_canary",
        "_head",
        "_max_length",
        "_parts",
        "_patterns",
        "_set",
        "_single_regexes",
        "_tail",
    )

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        head: int = 64 * 1024,
        tail: int = 64 * 1024,
        memory: int = 8 * 1024 * 1024,
    ) -> None:
        """Compile `patterns`; raise `RegexError` for the first invalid one.

        `memory` is RE2's budget for the automaton in bytes. Patterns that need more are searched in
        several passes, and with little memory more texts are searched pattern by pattern; the
        results are the same.
        """
        self._patterns = tuple(patterns)
        self._head = head
        self._tail = tail
        self._max_length = head + tail
        self._canary = len(self._patterns)
        self._set: Any = _compile_set(patterns, memory)
        self._single_regexes: tuple[Regex, ...] = ()
        self._parts: tuple[RegexSet, ...] = ()
        if self._set is not None:
            return
        if len(patterns) < 2:
            self._compile_singly()
        else:
            half = len(patterns) // 2
            self._parts = tuple(
                RegexSet(part, head=head, tail=tail, memory=memory)
                for part in (patterns[:half], patterns[half:])
            )

    def __len__(self) -> int:
        return len(self._patterns)

    def _compile_singly(self) -> tuple[Regex, ...]:
        """Return the single patterns, compiled on first use: they are rarely needed."""
        if not self._single_regexes:
            self._single_regexes = tuple(map(Regex, self._patterns))
        return self._single_regexes

    def first_match(self, text: str) -> int | None:
        """Return the index of the first pattern that matches, or None."""
        if len(text) > self._max_length:
            # The newline keeps a match from spanning the cut.
            text = f"{text[: self._head]}\n{text[len(text) - self._tail :]}"
        if self._set is not None:
            matches: list[int] | None = self._set.Match(text.encode("utf-8", "replace"))
            if matches and self._canary in matches:
                first = min(matches)
                return None if first == self._canary else first
        if self._parts:
            before, after = self._parts
            found = before.first_match(text)
            if found is None and (found := after.first_match(text)) is not None:
                found += len(before)
            return found
        regexes = enumerate(self._compile_singly())
        return next((index for index, regex in regexes if regex.search(text)), None)


@cache
def _unanchored() -> Any:
    import re2  # slow import

    return re2._Anchor.UNANCHORED


@cache
def _options(memory: int | None = None, *, captures: bool = False) -> Any:
    import re2  # slow import

    options = re2.Options()
    options.log_errors = False
    options.never_capture = not captures
    if memory is not None:
        options.max_mem = memory
    return options


def _compile(pattern: str, *, captures: bool = False) -> Any:
    import re2  # slow import

    if not pattern.isascii() and any("\ud800" <= letter <= "\udfff" for letter in pattern):
        raise RegexError(pattern.encode("ascii", "backslashreplace").decode(), "lone surrogate")
    try:
        return re2.compile(pattern, _options(captures=captures))
    except re2.error as error:
        reason = error.args[0] if error.args else "not accepted"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise RegexError(pattern, text) from None


def _compile_set(patterns: Sequence[str], memory: int) -> Any:
    """Return RE2's set with the canary last, or None if it is too large or a pattern is invalid."""
    import re2  # slow import

    compiled = re2._re2.Set(_unanchored(), _options(memory))
    try:
        data = [pattern.encode() for pattern in (*patterns, r"\z")]
    except UnicodeEncodeError:
        return None
    if any(compiled.Add(pattern) < 0 for pattern in data):
        return None
    return compiled if compiled.Compile() else None


def _count_code_points(data: bytes) -> int:
    return len(data.decode("utf-8", "replace"))


def _next_code_point(data: bytes, position: int) -> int:
    position += 1
    while position < len(data) and data[position] in _CONTINUATION_BYTES:
        position += 1
    return position
