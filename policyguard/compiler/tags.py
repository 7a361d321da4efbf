"""Facts that the host gives of a session or a call, checked against what the policy declares."""

from __future__ import annotations

from typing import Any

from policyguard.evaluator.evaluator import CheckTags
from policyguard.model.policy import Policy, Tag

_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int": (int,),
    "double": (float, int),
    "bool": (bool,),
    "timestamp": (str, int),
}


def checker(policy: Policy) -> CheckTags:
    """The function that checks a policy's tags."""

    def check(given: dict[str, Any], *, overlay: bool = False) -> dict[str, Any]:
        tags = dict(given)
        wrong = []
        for name, tag in policy.tags.items():
            if name not in tags:
                if overlay:
                    continue
                if tag.default is None:
                    wrong.append(f"tag `{name}` is required ({tag.type})")
                else:
                    default = tag.default
                    tags[name] = list(default) if isinstance(default, tuple) else default
            elif not _fits(tag, tags[name]):
                allowed = f", one of {', '.join(map(str, tag.one_of))}" if tag.one_of else ""
                wrong.append(f"tag `{name}` must be {tag.type}{allowed}, not {tags[name]!r:.60}")
        if wrong:
            raise ValueError(f"policy `{policy.name}`: " + "; ".join(wrong))
        return tags

    return check


def _fits(tag: Tag, value: Any) -> bool:
    if tag.one_of and value not in tag.one_of:
        return False
    if tag.type == "list(string)":
        return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    if isinstance(value, bool) and tag.type != "bool":
        return False
    return isinstance(value, _PYTHON[tag.type])
