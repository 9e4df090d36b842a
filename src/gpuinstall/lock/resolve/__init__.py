"""Resolve requests with uv, facts from wheels, and alternative pins."""
