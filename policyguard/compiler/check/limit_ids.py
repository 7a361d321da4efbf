"""Check the ids of limits of which a level has several of one kind."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import limit_path
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.model.diagnostic import Diagnostic, quote_text
from policyguard.model.limits import LimitLevel, NamedLimit, iter_limits, limit_id
from policyguard.model.policy import Policy


def check_limit_ids(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report ids that two limits share, and those that are the name of a kind."""
    for level, limits in policy.limits.items():
        known: set[str] = set()
        for kind, index, limit in iter_limits(limits):
            if not isinstance(limit, NamedLimit) or limit.id is None:
                continue
            path = (*limit_path(limits, level, kind, index), "id")
            if limit.id in LimitLevel.__struct_fields__:
                message = f"{quote_text(limit.id)} is the name of a kind of limit"
                yield merged.diagnostic("schema/name", message, path, hint="use another name")
            elif (id_ := limit_id(level, kind, index, limit)) in known:
                message = f"two limits have the id {quote_text(id_)}"
                yield merged.diagnostic("reference/duplicate-id", message, path)
            else:
                known.add(id_)
