"""The story's assertions are shown in full, as those of a test's own module."""

import pytest

pytest.register_assert_rewrite("tests.adapters.frameworks.story")
