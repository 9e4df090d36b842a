"""Resolve with uv, check the resolved files, and explain uv's errors."""
