"""What ships: `core`, the defaults, and `packs`, one folder a pack."""
