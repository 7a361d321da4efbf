"""Five patterns refuse what they should in nearly all spellings, and hardly anything else."""

from __future__ import annotations

import pytest

from tests.shell.shell_cases import CORPORA, compile_patterns, read_case

BLOCKED_AT_LEAST = 0.97
REFUSED_AT_MOST = 0.02


@pytest.mark.parametrize("name", CORPORA)
def test_corpus(name: str) -> None:
    corpus = read_case(name)
    patterns = compile_patterns(*corpus["patterns"])
    missed = [text for text in corpus["blocked"] if patterns.find(text) is None]
    refused = [text for text in corpus["allowed"] if patterns.find(text) is not None]
    known = set(corpus.get("missed", ())) | set(corpus.get("refused", ()))
    assert [text for text in (*missed, *refused) if text not in known] == []


def test_shares_of_all_corpora() -> None:
    blocked = allowed = missed = refused = 0
    for name in CORPORA:
        corpus = read_case(name)
        patterns = compile_patterns(*corpus["patterns"])
        blocked += len(corpus["blocked"])
        allowed += len(corpus["allowed"])
        missed += sum(patterns.find(text) is None for text in corpus["blocked"])
        refused += sum(patterns.find(text) is not None for text in corpus["allowed"])
    assert blocked >= 300
    assert allowed >= 200
    assert missed <= blocked * (1 - BLOCKED_AT_LEAST)
    assert refused <= allowed * REFUSED_AT_MOST


@pytest.mark.parametrize("name", read_case("attacks"))
def test_attacks(name: str) -> None:
    attacks = read_case("attacks")[name]
    patterns = compile_patterns(*attacks["patterns"])
    assert [text for text in attacks["blocked"] if patterns.find(text) is None] == []
    assert [text for text in attacks.get("missed", ()) if patterns.find(text) is not None] == []


def test_there_are_many_attacks() -> None:
    assert sum(len(attacks["blocked"]) for attacks in read_case("attacks").values()) >= 200
