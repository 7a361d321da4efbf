"""The event log: one event a line. Its format is policyguard's own trace format."""
