"""One recorded session under a policy: its replay, what redacted data leaves open, its timeline."""
