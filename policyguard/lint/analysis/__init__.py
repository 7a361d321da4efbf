"""What several rules need to find out about patterns, conditions and calls."""
