"""Policy tests: stories in YAML beside a policy, and what runs them.

Nothing is imported here: the pytest plugin lives in this package, and a project without policy
tests must not pay for it.
"""
