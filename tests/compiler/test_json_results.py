"""`outcome.data`: results that are JSON, and their bounds."""

from __future__ import annotations

import pytest

from policyguard.cel import CelLimitError
from policyguard.compiler.build.json_results import JsonResultParser

PARSER = JsonResultParser(max_chars=5000, max_depth=3)


@pytest.mark.parametrize("text", ['[[["deep"]]]', '{"a": {"b": {"c": 1}}}', "7"])
def test_a_result_within_the_bounds_is_read(text: str) -> None:
    PARSER.parse(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('[[[["deep"]]]]', "limit-depth"),
        ('{"a": [{"b": [1]}]}', "limit-depth"),
        ("[" * 5000, "limit-depth"),
        ("[" * 5001, "limit-size"),
    ],
)
def test_a_result_beyond_a_bound_is_an_error(text: str, kind: str) -> None:
    with pytest.raises(CelLimitError) as caught:
        PARSER.parse(text)
    assert caught.value.kind == kind
