"""Intel: GPUs by architecture version, and builds for XPU."""
