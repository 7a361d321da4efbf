"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# How long one example takes is the machine's business, and machines are shared.
settings.register_profile("anywhere", deadline=None)
settings.load_profile("anywhere")
# In CI the properties are tried on the same examples each time: a change is judged by what it
# changes. Everywhere else they go on looking for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")

# What the tests compile is none of the user's cache, and comes out of none.
os.environ["POLICYGUARD_CACHE"] = "off"
