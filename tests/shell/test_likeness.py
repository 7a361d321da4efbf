"""Which command lines are alike, and which only look."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.shell.normal_form import normal_form
from policyguard.shell.read_only import is_read_only
from tests.shell.shell_cases import CORPORA, read_case, shell_reader

CASES = read_case("likeness")


@pytest.mark.parametrize("texts", CASES["alike"], ids=lambda texts: texts[0])
def test_alike(texts: list[str]) -> None:
    forms = {normal_form(text, shell_reader()) for text in texts}
    assert len(forms) == 1, forms


@pytest.mark.parametrize("texts", CASES["apart"], ids=lambda texts: texts[0])
def test_apart(texts: list[str]) -> None:
    for first, second in combinations(texts, 2):
        assert normal_form(first, shell_reader()) != normal_form(second, shell_reader())


@pytest.mark.parametrize("text", CASES["read_only"])
def test_read_only(text: str) -> None:
    assert is_read_only(text, shell_reader())


@pytest.mark.parametrize("text", CASES["changes"])
def test_changes(text: str) -> None:
    assert not is_read_only(text, shell_reader())


TEXTS = [text for name in CORPORA for text in read_case(name)["allowed"]]


@given(st.sampled_from(TEXTS), st.sampled_from(TEXTS))
def test_the_form_of_a_form_is_itself(first: str, second: str) -> None:
    reader = shell_reader()
    form = normal_form(f"{first} && {second}", reader)
    if "<<" not in form and "syntax error" not in reader.read(form).opaque:
        assert normal_form(form, reader) == form


@pytest.mark.parametrize("text", ["echo '", "( " * 200, "a" * 30_000, "\ud800", "ls \x04" + "0"])
def test_what_cannot_be_read_is_its_own_form(text: str) -> None:
    assert normal_form(f" {text} ", shell_reader()) == text.strip()
