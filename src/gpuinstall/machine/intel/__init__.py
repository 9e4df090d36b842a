"""Intel: its GPUs by the version of their architecture, as Level Zero or the bus tells it, and the builds for XPU."""
