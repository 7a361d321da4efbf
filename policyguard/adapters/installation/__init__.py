"""How a host is told to ask policyguard: the entries of its settings, one module per host."""
