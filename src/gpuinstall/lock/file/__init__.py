"""PEP 751 lock files: read, write, compare, check, and download."""
