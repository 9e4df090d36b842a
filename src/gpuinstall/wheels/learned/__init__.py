"""Cached facts about wheels that are not in the catalog."""
