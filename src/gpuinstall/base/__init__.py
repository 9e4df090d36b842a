"""Values and helpers that all other gpuinstall packages share.

This package imports no other gpuinstall package.

Packages exchange a ``Machine``, ``Request``, ``Reason``, ``Finding``, and the errors
of ``errors.py``. The other modules handle files, processes, text, and versions.
"""
