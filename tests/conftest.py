"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# In CI the properties are tried on the same examples each time: a change is judged by what it
# changes. Everywhere else they go on looking for new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
