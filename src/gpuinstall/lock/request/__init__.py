"""Requests from files, earlier commands, and other tools' lock files."""
