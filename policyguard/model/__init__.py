"""The model: frozen values that all other packages share, without I/O."""
