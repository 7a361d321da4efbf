"""Rules about what entries match, and what they do then."""
