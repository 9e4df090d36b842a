"""Locks: the request of a folder, the search for versions that run, and PEP 751 files.

``resolve_locks`` (``making.py``) searches with uv as a stack of decisions; ``write_locks`` writes a file for
each target; ``read_locks``, ``judge`` and ``best`` (``fit.py``) take the one that runs on a machine.
"""
