"""Conversion of lock files into the formats of other tools."""
