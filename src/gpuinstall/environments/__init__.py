"""Environments: their paths, packages, markers, stamps, and records.

``environment.py`` reads the marker of a managed environment, ``stamp.py`` its last
verification, and ``records.py`` the changes that a user can undo.
"""
