"""What a wheel says of itself and no catalogue yet: read in parts, judged, and kept."""
