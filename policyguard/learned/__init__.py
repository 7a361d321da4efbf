"""Learning: evidence becomes constraints, which apply to calls and decay. Pure, no clock."""
