"""Skip tests that need a GPU if the test run hides the GPUs."""

import pytest

from tests.lab import own_gpus


def pytest_collection_modifyitems(items):
    """Skip tests that need a GPU if the test run hides the GPUs."""
    if not own_gpus.is_hidden():
        return
    reason = "the GPUs of this machine are hidden; pytest -m gpu tests them"
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))
