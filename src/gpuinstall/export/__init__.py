"""Locks in the formats of other tools."""
