"""Convert lock files to the formats of other tools."""
