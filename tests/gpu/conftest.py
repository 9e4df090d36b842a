"""Skips of GPU tests in runs that hide the GPU."""

import pytest

from tests.lab import own_gpus


def pytest_collection_modifyitems(items):
    """Skip tests of a GPU that this run hides."""
    if not own_gpus.is_hidden():
        return
    reason = "the GPUs of this machine are hidden; pytest -m gpu tests them"
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))
