"""Examination of a machine, an environment, and a project."""
