"""Diagnose a machine, an environment, and a project."""
