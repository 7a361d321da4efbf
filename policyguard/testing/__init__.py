"""Policy tests: YAML files next to a policy, and their runners.

Nothing is imported here: the pytest plugin is part of this package, and must cost nothing in
projects without policy tests.
"""
