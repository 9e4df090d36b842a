"""Environments on a disk: where they lie, what they hold, what was proven of them.

The marker of one of ours (``environment.py``), its packages, the ``Stamp`` of its last proof, and what a
user has undone or may undo (``records.py``).
"""
