"""The words of policyguard: what the other rooms speak about. Frozen values, no I/O."""
