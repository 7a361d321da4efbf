"""Reports of policy tests."""
