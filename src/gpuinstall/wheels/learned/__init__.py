"""Rows of wheels that no catalog contains: read in parts, and cached."""
