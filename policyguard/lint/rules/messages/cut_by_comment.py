"""A message that a `#` cuts short.

In a text without quotes, a `#` behind a space begins a comment, so the model gets only what stands
before it.

Avoid:

    message: see issue #12 and ask the team

Prefer:

    message: "see issue #12 and ask the team"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import selective_entries
from policyguard.engines.yaml_tree import ScalarNode
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text

_KEYS = ("message", "instead", "reason")
_REST = re.compile(r"[ \t]+(#[0-9a-z][^\n]*)")
"""What goes on as a text would: a comment begins with a space, or as `#TODO`."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report texts without quotes behind which a comment goes on without a space."""
    for path, _ in selective_entries(context.policy):
        for key in _KEYS:
            node = context.merged.node((*path, key))
            if not isinstance(node, ScalarNode) or node.style:
                continue
            rest = _REST.match(node.source.text, node.end)
            if rest is not None:
                message = f"{quote_text(rest[1].strip())} is a comment, not part of the text"
                yield Finding(node.span, message, "put the whole text in quotes")
