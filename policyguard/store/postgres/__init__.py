"""The store in PostgreSQL, for guards on several hosts."""
