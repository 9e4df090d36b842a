"""Resolve requests, and write the results to PEP 751 lock files.

``resolve_locks`` (``resolve/locks.py``) resolves requests, and ``write_locks``
(``write.py``) writes a lock file for each target. ``file/fit.py`` selects the lock
file for a machine.
"""
