"""Environments: paths, packages, markers, verification, and records.

``environment.py`` reads the marker of a managed environment. ``stamp.py`` reads the last
verification. ``records.py`` lists the changes that a user can undo.
"""
