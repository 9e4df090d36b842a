"""Environments on a disk: where they lie, what they hold, what was written into them."""
