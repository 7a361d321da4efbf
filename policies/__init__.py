"""The policies we ship: `core`, the defaults, and `packs`, one folder per pack."""
