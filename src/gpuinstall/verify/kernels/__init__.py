"""Checks that run in the target environment (Python >=3.8, torch >=1.13)."""
