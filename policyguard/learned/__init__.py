"""Evidence → constraints: what failures teach, whom it binds, how it weakens. Pure, no clock."""
