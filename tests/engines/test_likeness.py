"""Calls that are alike by their folded arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.engines.likeness import CallLikeness


def _likeness(query: Any) -> str:
    """Return the query as it was folded; `as it is` if folding left it alone."""

    def fingerprint(tool: str, server: str, args: dict[str, Any]) -> tuple[str, str, tuple[()]]:
        return args["query"], "", ()

    alike = CallLikeness(fingerprint, ignore=(), fold=("query",), commands=())
    return alike.find("search", "", {"query": query, "page": 1}, "as it is")


@pytest.mark.parametrize(
    "query",
    ["New orders", "new  orders", " new orders", "new orders ", "new\torders", "new\u00a0orders"],
)
def test_case_and_white_space_are_folded(query: str) -> None:
    assert _likeness(query) == "new orders"


@pytest.mark.parametrize("query", ["new orders", "", 7, None])
def test_what_is_folded_already_stays(query: Any) -> None:
    assert _likeness(query) == "as it is"


@given(st.text(st.sampled_from("aB\u00df \t\n\u00a0\u200b\x00"), max_size=12))
def test_folding_is_casefold_and_single_spaces(query: str) -> None:
    folded = " ".join(query.casefold().split())
    assert _likeness(query) == ("as it is" if folded == query else folded)
