"""A guard's journals: where they are, and how long they stay."""
