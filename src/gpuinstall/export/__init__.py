"""Locks in other tools' formats: requirements, constraints, uv, conda, Dockerfiles, and what a node needs."""
