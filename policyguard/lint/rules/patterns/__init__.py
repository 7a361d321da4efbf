"""Rules about patterns: RE2, signatures, commands."""
