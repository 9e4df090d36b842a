"""Inspection of wheels by range requests, which read about 1% of each file.

``learned.reader.Reader`` reads parts of wheels within a budget, ``learned.store``
caches the rows, and ``inspector.Inspector`` determines from them whether a wheel runs.
"""
