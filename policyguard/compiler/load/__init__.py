"""Policy files → layers: find, parse, validate against the schema."""
