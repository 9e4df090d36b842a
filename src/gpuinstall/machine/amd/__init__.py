"""AMD: its GPUs by the kernel's own topology, its builds by the very code that a chip runs."""
