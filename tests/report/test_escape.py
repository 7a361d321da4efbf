"""What is printed says what it said, and does nothing where it is shown."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from policyguard.report.escape import for_json

_TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text(
    "\x1b\x7f\x9b\u202e\u2028\\u😀a"
)


@given(st.recursive(_TEXTS, lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner)))
def test_json_is_plain_ascii_and_the_same(value: object) -> None:
    encoded = msgspec.json.format(msgspec.json.encode(value), indent=2)
    shown = for_json(encoded)
    assert json.loads(shown) == value
    assert shown.isascii()
    assert shown.replace("\n", "").isprintable()
