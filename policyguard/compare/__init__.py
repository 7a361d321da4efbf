"""Compare what two policies mean: each change of an entry, and whether it is stricter."""
