"""PEP 751 lock files: read, compare, and select for a machine."""
