"""Paths: normalized before comparison, and an error if a program may expand them."""

from __future__ import annotations

import posixpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyguard.cel.errors import OperationError
from policyguard.cel.functions.paths import Glob, is_inside, matches_glob, normalize_path
from policyguard.shell.command_line import ANY


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("/srv/app/a.py", "/srv/app", True),
        ("/srv/app", "/srv/app", True),
        ("/srv/app/", "/srv/app/", True),
        ("/srv/application/a.py", "/srv/app", False),
        ("/srv/app/../other", "/srv/app", False),
        ("/srv/app/../app/a", "/srv/app", True),
        ("/srv/./app//a", "/srv/app", True),
        ("//srv/app/a", "/srv/app", True),
        ("///srv/app/a", "//srv/app", True),
        ("/../../srv/app/a", "/srv/app", True),
        ("/etc/passwd", "/", True),
        ("/srv/app/..", "/srv/app", False),
        ("/srv/app/...", "/srv/app", True),
        ("/srv/app/..a", "/srv/app", True),
        ("src/a.py", "src", True),
        ("src/../a.py", "src", False),
        ("../src/a.py", "src", False),
        ("a.py", ".", True),
        ("../a.py", ".", False),
        ("..", ".", False),
        ("..a", ".", True),
        ("/srv/ümlaut/a", "/srv/ümlaut", True),
        ("/srv/a b/c", "/srv/a b", True),
        ("/srv/app/100%", "/srv/app", True),
        ("/srv/app/a~b", "/srv/app", True),
        ("/srv/app/$1", "/srv/app", True),
    ],
)
def test_inside(path: str, root: str, expected: bool) -> None:
    assert is_inside(path, root) is expected


AMBIGUOUS = [
    "",
    "/srv/app/a\0b",
    "/srv/app/%2e%2e/x",
    "/srv/app/%2E./x",
    "/srv/app%2fx",
    "/srv/app%5Cx",
    "/srv/app/%252e%252e/x",
    "/srv/app/a%00",
    "/srv/app\\..\\x",
    "~root/x",
    "~/x",
    "~",
    "$HOME/x",
    "/srv/app/${X}/x",
    "/srv/app/$(pwd)",
    "/srv/app/$X",
    "/" + "a" * 100_000,
]


@pytest.mark.parametrize("path", AMBIGUOUS)
def test_an_ambiguous_path_is_an_error(path: str) -> None:
    for call in (lambda: is_inside(path, "/srv/app"), lambda: matches_glob(path, Glob("**"))):
        with pytest.raises(OperationError) as caught:
            call()
        assert caught.value.kind == "invalid-argument"
    with pytest.raises(OperationError):
        is_inside("/srv/app/x", path)


@pytest.mark.parametrize(
    ("path", "root"), [("a", "/srv"), ("/srv/a", "srv"), ("a", ".."), ("a", "../b")]
)
def test_incomparable_paths_are_an_error(path: str, root: str) -> None:
    with pytest.raises(OperationError):
        is_inside(path, root)


@pytest.mark.parametrize("value", [None, 1, b"/srv", ["/srv"]])
def test_only_strings_are_paths(value: Any) -> None:
    for call in (
        lambda: is_inside(value, "/"),
        lambda: is_inside("/", value),
        lambda: matches_glob(value, Glob("*")),
        lambda: matches_glob("/", value),
    ):
        with pytest.raises(OperationError) as caught:
            call()
        assert caught.value.kind == "no-such-overload"


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        (
            "/srv/*.py",
            ["/srv/a.py", "/srv/.py", "/srv//a.py"],
            ["/srv/a/b.py", "/srv/a.pyc", "a.py"],
        ),
        ("/srv/?.py", ["/srv/a.py", "/srv/é.py"], ["/srv/ab.py", "/srv/.py", "/srv//.py"]),
        ("/srv/**", ["/srv", "/srv/a", "/srv/a/b"], ["/srvx", "/srv2/a", "/"]),
        ("/srv/**/a.py", ["/srv/a.py", "/srv/b/c/a.py"], ["/srv/ba.py", "/srva.py", "/a.py"]),
        ("**/.env", ["/.env", "/a/.env", "/a/b/.env", ".env", "a/.env"], ["/a/x.env", "/.env/a"]),
        ("**/.env*", ["/a/.env", "/a/.env.local"], ["/a/b.env"]),
        ("**/*.key", ["/a/b.key", "b.key"], ["/a/b.key/c"]),
        ("**", ["/a/b", "a", "/"], []),
        ("*", ["a", ".a"], ["/a", "a/b"]),
        ("src/**/*.py", ["src/a.py", "src/b/a.py"], ["/src/a.py", "a/src/b.py"]),
        ("/a.b", ["/a.b"], ["/axb"]),
        ("/a(b)+$|^", ["/a(b)+$|^"], ["/ab"]),
        ("/**/x/**", ["/x", "/a/x", "/x/y", "/a/b/x/y/z"], ["/y", "/xy"]),
        ("/a***b", ["/ab", "/axb"], ["/a/b"]),
    ],
)
def test_like(glob: str, matching: list[str], other: list[str]) -> None:
    for path in matching:
        assert matches_glob(path, Glob(glob)) is True, path
        assert matches_glob(path, glob) is True, "a glob that is not a literal"
    for path in other:
        assert matches_glob(path, Glob(glob)) is False, path


def test_a_path_is_normalized_before_matching() -> None:
    assert matches_glob("/srv/x/../a.py", "/srv/*.py") is True
    assert matches_glob("/srv/a/../../etc/x", "/srv/**") is False
    assert matches_glob("/srv/a\n.py", "/srv/*.py") is True


def test_a_path_in_an_unknown_folder_is_another_one_by_its_name() -> None:
    assert matches_glob(f"{ANY}/a.py", Glob("**/*.key")) is False
    for path in (f"{ANY}/b.key", f"{ANY}/$X.py"):
        with pytest.raises(OperationError):
            matches_glob(path, Glob("**/*.key"))


@pytest.mark.parametrize("glob", ["", "[ab]", "{a,b}", "a\\*", "a\0", "../a", "/a/./b", "a" * 2000])
def test_bad_globs(glob: str) -> None:
    with pytest.raises(ValueError, match="glob"):
        Glob(glob)
    with pytest.raises(OperationError):
        matches_glob("/a", glob)


names = st.sampled_from(["a", "b", "..", ".", "", "app", "..."])


@given(st.lists(names, max_size=6), st.lists(names, max_size=4))
def test_inside_agrees_with_the_file_system(path: list[str], root: list[str]) -> None:
    """Walks both, component by component; there are no links."""

    def resolve(parts: list[str]) -> list[str]:
        result: list[str] = []
        for part in parts:
            if part == "..":
                del result[-1:]
            elif part not in ("", "."):
                result.append(part)
        return result

    expected = resolve(path)[: len(resolve(root))] == resolve(root)
    assert is_inside("/" + "/".join(path), "/" + "/".join(root)) is expected


@given(st.text(max_size=20))
def test_a_normalized_path_is_unchanged(text: str) -> None:
    try:
        normal = normalize_path(text, "inside")
    except OperationError:
        return
    assert normalize_path(normal, "inside") == normal
    assert posixpath.normpath(text).lstrip("/") == normal.lstrip("/")


@given(st.text("ab/*?.", min_size=1, max_size=12), st.text("ab/.", min_size=1, max_size=12))
def test_any_glob_can_be_matched(glob: str, path: str) -> None:
    try:
        found = Glob(glob).matches(path)
    except ValueError:
        return
    assert found in (True, False)
