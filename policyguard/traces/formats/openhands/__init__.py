"""Event streams of OpenHands."""
