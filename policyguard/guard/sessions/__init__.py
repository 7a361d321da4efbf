"""Sessions: how they are opened, found, ended, and what they say of themselves."""
