"""Shared values and tools: this package imports no other.

Packages exchange a ``Machine``, ``Request``, ``Reason``, ``Finding``, and the errors
of ``errors.py``. The other modules handle files, processes, text, and versions.
"""
