"""Locks in other tools' formats: requirements, constraints, uv, conda, pixi, Dockerfiles, and what a node needs."""
