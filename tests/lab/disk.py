"""A disk that is not waited for: each change of an environment would write out what all tests beside it have made.

What a power cut leaves is told by the tests that cut one: they start their commands.
"""

import os

from gpuinstall.install import transaction


def play():
    """Let this process take what it has written for safe at once."""
    vars(os)["fsync"] = done
    vars(transaction)["sync_file_system"] = done


def done(_file: object):
    """Wait for nothing."""
