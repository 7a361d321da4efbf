"""Rules about the CEL of conditions."""
