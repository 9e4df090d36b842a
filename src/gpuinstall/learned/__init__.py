"""What no catalogue says yet and a wheel says itself: read in parts, judged by the same rules, and kept."""
