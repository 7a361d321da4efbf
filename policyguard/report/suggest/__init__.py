"""Reports of `policyguard suggest`."""
