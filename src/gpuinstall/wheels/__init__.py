"""Wheels that are not here, read in parts: what GPU code they hold, for a hundredth of their size."""
