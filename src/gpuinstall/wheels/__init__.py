"""Inspection of wheels by range requests, for a hundredth of the download.

``learned.reader.Reader`` reads parts of wheels within a budget, ``learned.store`` caches
the rows, and ``inspector.Inspector`` decides from them whether a wheel runs.
"""
