"""A job over many recordings, and how several processes share it."""
