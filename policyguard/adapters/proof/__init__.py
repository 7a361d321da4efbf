"""Whether a host's hooks hold: the real host runs against a scripted model that misbehaves."""
