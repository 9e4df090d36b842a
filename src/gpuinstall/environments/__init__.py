"""Environments on a disk: where they lie, what they hold, what was proven of them, and who uses them."""
