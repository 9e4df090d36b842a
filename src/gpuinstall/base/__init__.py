"""Values and tools that every room uses.

A ``Machine``, a ``Request``, a ``Reason``, a ``Finding`` and the errors of ``errors.py`` are what rooms
hand to each other; files, processes, text and versions are how they work. It imports no other room.
"""
