"""Programs that live for one call of an agent, and their way to the service."""
