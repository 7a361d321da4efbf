"""Runtime: the operations that generated code calls, and the limits on their cost."""
