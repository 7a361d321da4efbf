"""Rules about messages."""
