"""Which keys stand at the top of a YAML file that may be anything, read no further than needed."""

from __future__ import annotations

import re

_FIRST_KEY = re.compile(
    r"""\A (?: \ufeff | \s | \#[^\n]*\n | ---(?=\s) | %[^\n]*\n )* \{? \s*
        (["']?) (?P<key>[\w-]+) \1 \s* :""",
    re.VERBOSE,
)
_UNINDENTED_KEY = re.compile(r"""^(["']?)(?P<key>[\w-]+)\1\s*:""", re.MULTILINE)


def has_top_keys(data: bytes, *names: str) -> bool:
    """Whether a text that may be anything has these keys at its top; parsed where that is likely.

    A folder may hold thousands of other programs' files: most have not even the words.
    """
    wanted = [name.encode() for name in names]
    lines = data.splitlines()
    if all(any(line.startswith(name + b":") for line in lines) for name in wanted):
        return True
    plain = data.replace(b"\0", b"")  # UTF-16 has zeros
    return all(name in plain for name in wanted) and read_top_keys(data).issuperset(names)


def read_top_keys(data: bytes) -> frozenset[str]:
    """The keys of the mapping that a text is, none of one that is something else.

    Of a text that cannot be parsed (as UTF-16 cannot), the keys that stand at the margin, and the
    first of all.
    """
    from policyguard.engines.yaml_source import parse  # few files get here
    from policyguard.engines.yaml_tree import MappingNode

    found = parse(data, "")
    if found.root is None:
        text = data.replace(b"\0", b"").decode(errors="replace").lstrip("\ufffd")
        first = _FIRST_KEY.match(text)
        margin = {match["key"] for match in _UNINDENTED_KEY.finditer(text)}
        return frozenset(margin | {first["key"]} if first else margin)
    return frozenset(found.root) if isinstance(found.root, MappingNode) else frozenset()
