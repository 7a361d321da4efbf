"""Answers about texts are found once, as many as the policy's bounds say."""

from __future__ import annotations

from msgspec.structs import replace

from policyguard.shell.kept_answers import keep_answers
from tests.shell.shell_cases import shell_reader


def test_the_latest_answers_about_short_texts_are_kept() -> None:
    asked: list[str] = []

    def find(text: str) -> int:
        asked.append(text)
        return len(text)

    bounds = replace(shell_reader().facts.bounds, texts=2, chars=3)
    answer = keep_answers(find, bounds)
    texts = ["a", "abc", "a", "ab", "a", "abc", "abcd", "abcd"]
    assert [answer(text) for text in texts] == [len(text) for text in texts]
    assert asked == ["a", "abc", "ab", "abc", "abcd", "abcd"]
