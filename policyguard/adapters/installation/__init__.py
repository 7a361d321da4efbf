"""The entries in hosts' settings that make them ask policyguard, one module per host."""
