"""What command patterns match, and what they may not look like."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.shell.pattern import CommandPattern, PatternError
from policyguard.shell.pattern_set import CommandPatterns
from tests.examples import some
from tests.shell.shell_cases import CORPORA, compile_patterns, read_case, shell_reader

CASES = [
    (case["pattern"], kind, text)
    for case in read_case("patterns")
    for kind in ("may", "not", "must", "may_not_must")
    for text in case.get(kind, ())
]


@pytest.mark.parametrize(("pattern", "kind", "text"), CASES)
def test_pattern(pattern: str, kind: str, text: str) -> None:
    patterns = compile_patterns(pattern)
    found = patterns.find(text)
    if kind == "not":
        assert found is None
    elif text:
        assert found is not None
        assert found.text == pattern
    if kind in ("must", "may_not_must", "not"):
        assert patterns.covers(text) == (kind == "must")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "a command is missing"),
        ("curl |", "a command is missing"),
        ("| sh", "a command is missing"),
        ("-f", "it begins with `-f`"),
        ("cd x && rm -r y", "`&&` joins commands"),
        ("ls; rm -r y", "`ls;` joins commands"),
        ("git commit -m 'a b'", "`'a` has quotes"),
        ('sh -c "ls"', '`"ls"` has quotes'),
        ("!-f", "it begins with `!-f`"),
        ("/bin/rm", "`/bin/rm` is a path"),
        ("Bash(git push:*)", "`Bash(git` is no program"),
        ("git push:*", "`push:*` is no command"),
        ("ls:*", "`ls:*` is no command"),
        ("rm >", "nothing follows `>`"),
        ("rm >> x", "`>>` is not a redirection"),
        ("rm 2> x !", "nothing follows `!`"),
        ("rm a|-b", "mixes words and options"),
        ("rm -a|b", "mixes words and options"),
        ("rm -*", "is an option with `*`"),
        ("rm a||b", "an alternative in `a||b` is empty"),
        ("git push !x y", "`y` follows a `!word`"),
        ("rm -- x", "mixes words and options"),
    ],
)
def test_invalid_pattern(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError) as caught:
        CommandPattern(pattern)
    assert reason in str(caught.value)
    assert caught.value.help


def test_an_unrelated_pattern_concerns_no_text_that_can_be_seen() -> None:
    patterns = compile_patterns("qqq", "> /qqq/**")
    for name in CORPORA:
        for text in read_case(name)["allowed"]:
            assert patterns.find(text) is None or shell_reader().read(text).opaque


@pytest.mark.parametrize("name", CORPORA)
def test_the_prefilter_drops_nothing_that_may_match(name: str) -> None:
    corpus = read_case(name)
    patterns = compile_patterns(*corpus["patterns"])
    everything = CommandPatterns([CommandPattern("*"), *patterns.patterns], shell_reader())
    for text in some((*corpus["blocked"], *corpus["allowed"]), 3):
        parsed = [pattern for pattern in patterns.patterns if _may_match(pattern, text)]
        assert (patterns.find(text) is not None) == bool(parsed)
    assert everything.find("ls") is not None


SIGNS = [
    ("aws ec2 terminate-instances", "aws ec2 terminate-instances --instance-ids i"),
    ("git push ** *:main", "git push origin HEAD:main"),
    ("* < **/.env", "cat a/.env"),
    ("> **/.env", "echo a > .env"),
    ("dd of=/dev/**", "dd of=/dev/sda"),
    ("npm run deploy:*", "npm run deploy:prod"),
    ("docker-compose down", "docker-compose down"),
    ("pip install *==*", "pip install a==1"),
]


@given(st.sampled_from(SIGNS), st.data())
def test_quotes_anywhere_in_a_word_hide_it_from_no_pattern(
    given_pair: tuple[str, str], data: st.DataObject
) -> None:
    pattern, text = given_pair
    words = text.split()
    # One word alone: quotes in another would have the whole text read.
    index = data.draw(st.sampled_from([i for i, word in enumerate(words) if word != ">"]))
    word = words[index]
    start = data.draw(st.integers(0, len(word)))
    end = data.draw(st.integers(start, len(word)))
    quote = data.draw(st.sampled_from("'\""))
    words[index] = f"{word[:start]}{quote}{word[start:end]}{quote}{word[end:]}"
    assert compile_patterns(pattern).find(" ".join(words)) is not None


def _may_match(pattern: CommandPattern, text: str) -> bool:
    """Match without the prefilter, which has nothing to look for beside `*`."""
    if "syntax error" in shell_reader().read(text).opaque:
        return compile_patterns(pattern.text).find(text) is not None
    both = CommandPatterns([pattern, CommandPattern("*")], shell_reader())
    return both.find(text) is pattern


@given(st.text(alphabet="abc-|!<>=* /", max_size=20))
def test_any_text_is_a_pattern_or_an_error(text: str) -> None:
    with contextlib.suppress(PatternError):
        CommandPatterns([CommandPattern(text)], shell_reader()).find("a b -c $x *.b | c > a")
