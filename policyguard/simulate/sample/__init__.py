"""A sample of the recorded sessions, and what it says of all of them."""
