"""Files, compressed files and archives: how their contents are read within limits."""
