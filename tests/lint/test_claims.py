"""What a rule claims, holds: RE2, CEL and the evaluator are asked whether it does."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from policyguard import Guard, cel
from policyguard.cel.syntax.parse import parse
from policyguard.compiler import compile_policy
from policyguard.compiler.check.examples import prepare_example
from policyguard.engines.regex import Regex, RegexError
from policyguard.lint import lint_paths
from policyguard.lint.analysis.required_literals import required_literals
from policyguard.lint.analysis.satisfiability import is_unsatisfiable
from policyguard.model.entry import Example
from policyguard.model.errors import ExpressionError
from tests.examples import examples

# Patterns over a few letters, so that texts made of the same are often found.

ATOM = st.sampled_from(
    ["a", "b", "ab", "A", "K", "1", " ", "-", ".", "^", "$", r"\b", r"\B", r"\d", r"\w", r"\s",
     r"\A", r"\z", r"\.", "[ab]", "[^a]", "[a-c1]", "(?i:Ab)", "(?i:k)", r"\x61", "[[:digit:]]"]
)  # fmt: skip
PATTERN = st.recursive(
    ATOM,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda part: f"(?i){part}"),
        inner.map(lambda part: f"({part})"),
    ),
    max_leaves=6,
)
TEXT = st.text("abABkK1 -.\n_ſK", max_size=10)


def _compiled(pattern: str) -> Regex:
    try:
        return Regex(pattern)
    except RegexError:
        assume(False)
        raise


@settings(max_examples=examples(400))
@given(PATTERN, st.lists(TEXT, min_size=1, max_size=8), st.data())
def test_whatever_a_pattern_finds_has_a_text_that_it_needs(pattern, texts, data):
    regex, wanted = _compiled(pattern), required_literals(pattern)
    if wanted:
        one = data.draw(st.sampled_from(sorted(wanted)))
        texts += [
            f"{before}{one.text}{behind}" for before, behind in itertools.product(texts, texts)
        ]
    for text in texts:
        if regex.search(text) and wanted:
            assert any(
                one.text.casefold() in text.casefold() if one.ignore_case else one.text in text
                for one in wanted
            )


@pytest.mark.parametrize("pack", ["core", "ml-training", "strict"])
def test_the_examples_of_what_ships_have_the_texts_that_their_patterns_need(pack):
    tried = 0
    for signature in compile_policy(pack).policy.signatures:
        wanted = required_literals(signature.pattern)
        for text in signature.examples.match if wanted else ():
            tried += 1
            folded = text.casefold()
            assert any(one.text.casefold() in folded for one in wanted), signature.id
    assert tried > 10


@contextmanager
def _policy(text: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.yaml"
        targets = "" if "classify:" in text else "classify: {targets: [target]}\n"
        file.write_text(f"policyguard: 1\nname: claims\n{text}\n{targets}")
        yield file


def _found(text: str, code: str) -> list[int]:
    """The lines, from 0, of `text` that a rule is about."""
    with _policy(text) as file:
        result = lint_paths([file], select=[code])
    assert all(found.code == code for found in result.diagnostics), result.diagnostics
    return [found.span.line - 3 for found in result.diagnostics]


def _quoted(pattern: str) -> str:
    return "'" + pattern.replace("'", "''") + "'"


@st.composite
def _after(draw) -> list[str]:
    """Patterns of which the last has a good chance to find only what those before find."""
    first = draw(st.lists(PATTERN, min_size=1, max_size=2))
    inside = draw(
        st.sampled_from(["a", "b", "ab", "1", "a1", "(?i)ab", "(?i:k)", "(?:a|b)", "a-?b"])
    )
    flags = "(?i)" if inside.startswith("(?i)") else ""
    before, behind = (draw(st.sampled_from(["", "", "a", "-", ".", r"\b", "b*"])) for _ in "12")
    return [*first, f"{flags}{before}{inside.removeprefix(flags)}{behind}"]


AROUND = ("", "a", "A", "1", "_", " ", "-", "\n")


@settings(max_examples=examples(400, 10), deadline=None)
@example([r"\bb|_b", "b"], [])  # found behind each of what is tried, and not behind a letter
@given(_after(), st.lists(TEXT, max_size=4))
def test_a_signature_reported_as_shadowed_never_matches(patterns, texts):
    regexes = [_compiled(pattern) for pattern in patterns]
    lines = "".join(f"  - {{id: s{i}, pattern: {_quoted(p)}}}\n" for i, p in enumerate(patterns))
    for line in _found(f"signatures:\n{lines}", "lint/shadowed-signature"):
        index = line - 1
        seen = [one.text for one in required_literals(patterns[index])]
        seen += [text.swapcase() for text in seen]
        tried = [a + text + b for text in seen for a in AROUND for b in AROUND]
        for text in (*texts, *tried):
            if regexes[index].search(text):
                assert any(regex.search(text) for regex in regexes[:index])


# Conditions on a few values.

VALUE = st.sampled_from(["x", "x", "x", "y"])
CONSTANT = st.sampled_from(["1", "2", "2.0", "3", "'a'", "'ab'", "'b'", "true"])
FUNCTION = st.sampled_from(["startsWith", "endsWith", "contains", "matches"])
SIMPLE = st.one_of(
    st.tuples(VALUE, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), CONSTANT).map(" ".join),
    st.tuples(CONSTANT, st.sampled_from(["==", "!=", "<", ">="]), VALUE).map(" ".join),
    st.builds("{} in [{}, {}]".format, VALUE, CONSTANT, CONSTANT),
    st.builds("{}.{}({})".format, VALUE, FUNCTION, st.sampled_from(["'a'", "'ab'", "'b'"])),
    st.tuples(VALUE, VALUE).map(" == ".join),
    VALUE.map(lambda value: f"size({value}) >= 0"),
    st.sampled_from(["true", "false"]),
)  # fmt: skip
CONDITION = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(lambda part: f"!({part})"),
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(lambda p: f"({' '.join(p)})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} ? {p[1]} : {p[2]})"),
    ),
    max_leaves=6,
)
VALUES = (0, 1, 2, 2.5, 3, 4, "", "a", "ab", "b", "ba", True, False, None)


@settings(max_examples=examples(1000, 10), deadline=None)
@example("x >= 2 && x <= 2")
@example("!(x > 2) && !(x < 2.0)")
@given(CONDITION)
def test_a_condition_reported_as_never_true_never_is(source):
    tree = parse(source, lambda *_: None)
    assert tree is not None
    program = cel.compile(source, {"x": "dyn", "y": "dyn"}, check=False)
    impossible = {wanted for wanted in (True, False) if is_unsatisfiable((tree, wanted))}
    for x, y in itertools.product(VALUES, (1, "a", "ab", 2)) if impossible else ():
        try:
            answer = program(x=x, y=y)
        except ExpressionError:
            continue
        assert answer not in impossible


# Classes.

WORD = st.sampled_from(["get", "set", "run"])
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "words": st.lists(WORD, min_size=1, max_size=2),
        "tools": st.lists(
            st.sampled_from(["get_a", "run", "get_*", "*_a", "*"]), min_size=1, max_size=2
        ),
        "when": st.sampled_from(["has(call.args.x)", "has(call.args.y)"]),
    },
).filter(bool)  # fmt: skip
NAMES = ("get", "get_a", "set_a", "run", "get_b", "run_a", "other", "runGet_a")


@settings(max_examples=examples(120, 10), deadline=None)
@given(st.lists(ENTRY, min_size=2, max_size=4))
def test_a_class_reported_as_shadowed_is_never_the_main_class(entries):
    lines = "".join(
        f"    - {{class: c{i}, {', '.join(f'{k}: {_yaml(v)}' for k, v in entry.items())}}}\n"
        for i, entry in enumerate(entries)
    )
    names = [f"c{i}" for i in range(len(entries))]
    limits = "".join(f"{name}: {{repeat: {{max: 9, same: call}}}}, " for name in names)
    text = f"classify:\n  classes:\n{lines}limits: {{classes: {{{limits}}}}}\n"
    shadowed = _found(text, "lint/shadowed-class")
    with _policy(text) as file:
        compiled = compile_policy(file)
    seen_classes = set()
    for tool, args in itertools.product(NAMES, ({}, {"x": 1}, {"y": 1}, {"x": 1, "y": 1})):
        _, attempt = prepare_example(
            compiled.policy, Example(tool=tool, args=args), compiled.evaluator
        )
        seen_classes.add(attempt.class_)
    assert seen_classes.isdisjoint(f"c{line - 2}" for line in shadowed)


def _yaml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    return str(value)


# Limits and budgets: an agent's way is the same without what is said never to refuse.

CALL = st.tuples(st.sampled_from("aaab"), st.sampled_from("xy"), st.booleans())
CALLS = st.lists(CALL, min_size=5, max_size=40)
TURNS = st.frozensets(st.integers(0, 40), max_size=3)


STUCK = [
    [("a", "x", True), ("b", "x", True)] * 10,
    [("a", "x", True), ("b", "x", True), ("c", "x", True)] * 8,
    [("a", "x", False)] * 12,
]


def _way(text: str, calls: list[tuple[str, str, bool]], turns: frozenset[int]) -> list[str]:
    with _policy(text) as file:
        guard = Guard.load(file, clock=itertools.count(1, 10**9).__next__)
    session = guard.session("s")
    effects = []
    for index, (tool, result, ok) in enumerate(calls):
        if index in turns:
            session.turn()
        decision = session.check(tool, {})
        effects.append(decision.effect.value)
        if decision.allowed:
            failure = {} if ok else {"error": result}
            session.record(decision, result=result, cost=1.0, tokens=2, **failure)
    return effects


PER = st.sampled_from(["turn", "session"])
EFFECT = st.sampled_from(["block", "halt"])


@st.composite
def _limits(draw) -> list[str]:
    repeat = (
        f"repeat: {{max: {draw(st.integers(1, 4))}, window: {draw(st.integers(4, 12))}, "
        f"same: {draw(st.sampled_from(['call', 'target', 'call_and_result']))}, per: {draw(PER)}}}"
    )
    cycle = (
        f"cycle: {{max: {draw(st.integers(1, 4))}, longest: {draw(st.integers(2, 3))}, "
        f"per: {draw(PER)}, effect: {draw(EFFECT)}}}"
    )
    failures = (
        f"failures: {{max: {draw(st.integers(1, 6))}, per: {draw(PER)}, effect: {draw(EFFECT)}}}"
    )
    return [repeat, cycle, failures]


# Three calls that come round leave a window of four before they come a third time.
LONGER_THAN_THE_WINDOW = ["repeat: {max: 2, window: 4, same: call}", "cycle: {max: 3, longest: 3}"]
# A `repeat` that forgets with each turn beside a cycle that does not.
ONE_TURN_AND_ALL = [
    "repeat: {max: 1, window: 4, same: call, per: turn}",
    "cycle: {max: 1, longest: 2}",
]


@settings(max_examples=examples(80, 10), deadline=None)
@example(LONGER_THAN_THE_WINDOW, None, [], frozenset())
@example(ONE_TURN_AND_ALL, (1, "turn", "block"), [], frozenset())
@given(
    _limits(),
    st.one_of(st.none(), st.tuples(st.integers(1, 8), PER, EFFECT)),
    st.lists(CALLS, min_size=1, max_size=1),
    TURNS,
)
def test_a_limit_reported_as_unreachable_never_refuses(limits, budget, ways, turns):
    def text(kinds: list[str]) -> str:
        lines = "limits:\n  default:\n" + "".join(f"    {kind}\n" for kind in kinds)
        if budget is None:
            return lines
        calls, per, effect = budget
        return lines + f"budgets: {{b: {{calls: {calls}, per: {per}, effect: {effect}}}}}\n"

    for line in _found(text(limits), "lint/unreachable-limit"):
        rest = [kind for index, kind in enumerate(limits) if index != line - 2]
        for calls, turn in itertools.product((*ways, *STUCK), (turns, frozenset(range(0, 40, 5)))):
            assert _way(text(limits), calls, turn) == _way(text(rest), calls, turn)


BUDGET = st.tuples(
    st.sampled_from(["turn", "session", "global", "user"]),
    st.sampled_from(["", "", "within: 5s", "within: 20s"]),
    st.sampled_from(["", "", "tools: [a]", "when: call.tool == 'a'"]),
    st.sampled_from(["advise", "ask", "block", "halt"]),
)


@settings(max_examples=examples(200, 10), deadline=None)
@given(
    st.sampled_from(["calls", "cost", "tokens"]),
    st.tuples(BUDGET, BUDGET),
    st.integers(2, 8),
    st.integers(-1, 3),
    st.lists(CALLS, min_size=2, max_size=2),
    TURNS,
)
def test_a_budget_reported_as_shadowed_is_never_used_up(kind, pair, least, more, ways, turns):
    lines = []
    for index, (per, within, about, effect) in enumerate(pair):
        limit = least + index * more
        rest = "".join(f", {part}" for part in (within, about) if part)
        lines.append(f"  b{index}: {{{kind}: {limit}, per: {per}, effect: {effect}{rest}}}\n")
    for line in _found("budgets:\n" + "".join(lines), "lint/shadowed-budget"):
        rest = "".join(one for index, one in enumerate(lines) if index != line - 1)
        for calls in (*ways, [("a", "x", True)] * 20):
            whole = _way("budgets:\n" + "".join(lines), calls, turns)
            assert whole == _way("budgets:\n" + rest, calls, turns)


BLAME = st.sampled_from(["agent", "harness", "unknown"])
TEACHES = st.sampled_from(["agent", "unknown"])
BLAMES = st.one_of(st.none(), st.lists(TEACHES, min_size=1, max_size=2, unique=True))


@settings(max_examples=examples(150, 10), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["error", "success"]), BLAME, st.booleans(), BLAMES),
        max_size=2,
    ),
    st.one_of(st.none(), BLAME),
    st.booleans(),
    BLAMES,
)
def test_nothing_is_learned_exactly_where_that_is_reported(signatures, rule, learns, blame):
    lines = ["signatures:"] if signatures else []
    for index, (on, blamed, overrides, own) in enumerate(signatures):
        reported = f", learn: {{{_listed(own)}}}" if overrides else ""
        lines.append(
            f"  - {{id: s{index}, pattern: err{index}, on: {on}, blame: {blamed}{reported}}}"
        )
    if rule:
        when = 'outcome.signature == "s0"' if signatures else "true"
        lines.append(f"blame: [{{id: r, when: '{when}', blame: {rule}}}]")
    if learns:
        lines.append(f"learn: {{{_listed(blame)}}}")
    text = "".join(f"{line}\n" for line in lines)
    reported = _found(text, "lint/learns-nothing")
    taught = {index for index in range(3) if _refuses_the_third(text, f"err{index}")}
    if learns and len(lines) - 1 in reported:
        assert not taught
    elif learns:
        assert taught or rule
    wrong = {index for index, (on, *_) in enumerate(signatures) if on == "error"}
    assert not taught & wrong & {line - 1 for line in reported}


def _listed(blame: list[str] | None) -> str:
    return "" if blame is None else f"blame: [{', '.join(blame)}]"


def _refuses_the_third(text: str, error: str) -> bool:
    with _policy(text) as file:
        session = Guard.load(file).session("s")
    for _ in range(2):
        session.record(session.check("a", {}), error=error)
    return not session.check("a", {}).allowed
