"""`tests/stories` runs these files; policyguard's own pytest plugin must not do so once more."""

collect_ignore_glob = ["*.yaml"]
