"""Requests and their sources: files, earlier commands, other tools' locks."""
