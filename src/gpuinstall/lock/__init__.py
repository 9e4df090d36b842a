"""Lock files: requests, their resolution, and PEP 751 files.

``resolve_locks`` (``resolve/locks.py``) resolves requests, and ``write_locks``
(``write.py``) writes a file for each target. ``file/fit.py`` selects the file for a
machine.
"""
