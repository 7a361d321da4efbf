"""Comments are found exactly where a YAML parser finds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.engines.yaml_comments import find_comments
from policyguard.engines.yaml_source import parse
from policyguard.engines.yaml_tree import to_plain


def _find(text: str) -> list[tuple[str, int, bool]]:
    parsed = parse(text, "x.yaml")
    assert parsed.root is not None, parsed.diagnostics
    source = parsed.root.source
    return [
        (one.text, source.span(one.start, one.end).line, one.is_whole_line)
        for one in find_comments(parsed.root)
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# first\na: 1\n", [("first", 1, True)]),
        ("a: 1   # behind\n", [("behind", 1, False)]),
        ("a: x#y\n", []),
        ("a: 'x # y'\n", []),
        ('a: "x # y"   # z\n', [("z", 1, False)]),
        ("a: [b, # one\n  c] # two\n", [("one", 1, False), ("two", 2, False)]),
        ("a: >-  # of the block\n  x # y\n  # z\n", [("of the block", 1, False)]),
        ("a: |\n  x\n# behind the block\nb: 1\n", [("behind the block", 3, True)]),
        ("'# no': 1 # yes\n", [("yes", 1, False)]),
        ("a: &h # one\n  b: 1\nc: *h # two\n", [("one", 1, False), ("two", 3, False)]),
        ("a: 1\n  # the last, without a line break", [("the last, without a line break", 2, True)]),
        ("a:\n  - # first\n    b\n", [("first", 2, False)]),
    ],
)  # fmt: skip
def test_comments_are_found(text, found):
    assert _find(text) == found


_TEXT = st.text("ab #'\"|>:-[]{},\n\\", max_size=40)


@given(
    st.lists(
        st.sampled_from(
            [
                "# a comment",
                "k{}: v # behind",
                "k{}: 'a # b' # c",
                "k{}: |\n  text # no\n  # no",
                'k{}: ["#", x] # d',
                "k{}:\n  # inside\n  j: 1",
                "k{}: >- # head\n  folded",
                "",
            ]
        ),
        min_size=1,
        max_size=12,
    )
)
def test_removing_comments_changes_no_value(lines):
    text = "first: 1\n" + "\n".join(line.format(i) for i, line in enumerate(lines)) + "\n"
    parsed = parse(text, "x.yaml")
    assert parsed.root is not None
    bare = text
    for comment in reversed(list(find_comments(parsed.root))):
        bare = bare[: comment.start] + bare[comment.end :]
    again = parse(bare, "x.yaml")
    assert again.root is not None
    assert to_plain(again.root) == to_plain(parsed.root)
    assert list(find_comments(again.root)) == []


@given(_TEXT)
def test_comments_of_any_text_change_no_value(text):
    parsed = parse(text, "x.yaml")
    if parsed.root is None or parsed.diagnostics:
        return
    bare = text
    for comment in reversed(list(find_comments(parsed.root))):
        assert bare[comment.start] == "#"
        bare = bare[: comment.start] + bare[comment.end :]
    again = parse(bare, "x.yaml")
    assert again.root is not None
    assert to_plain(again.root) == to_plain(parsed.root)
