"""The top-level keys of a file that may be anything, parsed only if necessary."""

from __future__ import annotations

import re

_FIRST_KEY = re.compile(
    r"""\A (?: \ufeff | \s | \#[^\n]*\n | ---(?=\s) | %[^\n]*\n )* \{? \s*
        (["']?) (?P<key>[\w-]+) \1 \s* :""",
    re.VERBOSE,
)
_UNINDENTED_KEY = re.compile(r"""^(["']?)(?P<key>[\w-]+)\1\s*:""", re.MULTILINE)


def has_top_keys(data: bytes, *names: str) -> bool:
    """Whether a file of any kind has these keys at its top; parse it only if that is likely.

    A folder may hold thousands of other programs' files, and most do not contain the words.
    """
    encoded = [name.encode() for name in names]
    lines = data.splitlines()
    if all(any(line.startswith(name + b":") for line in lines) for name in encoded):
        return True
    plain = data.replace(b"\0", b"")  # UTF-16 has zeros
    return all(name in plain for name in encoded) and read_top_keys(data).issuperset(names)


def read_top_keys(data: bytes) -> frozenset[str]:
    """Return the keys of a file that is a mapping, else none.

    If the file cannot be parsed (such as UTF-16), return its first and its unindented keys.
    """
    from policyguard.engines.yaml_source import parse  # few files get here
    from policyguard.engines.yaml_tree import MappingNode

    root = parse(data, "").root
    if root is None:
        text = data.replace(b"\0", b"").decode(errors="replace").lstrip("\ufffd")
        first = _FIRST_KEY.match(text)
        unindented = {match["key"] for match in _UNINDENTED_KEY.finditer(text)}
        return frozenset(unindented | {first["key"]} if first else unindented)
    return frozenset(root) if isinstance(root, MappingNode) else frozenset()
