"""Locks: the request of a folder, what uv makes of it with our facts, and PEP 751 files.

``resolve_locks`` (``solve/solve.py``) resolves; ``write_locks`` (``file/write.py``) writes a file for each target;
``read_locks``, ``fit`` and ``best`` (``file/fit.py``) take the one that runs on a machine.
"""
