"""AMD: GPUs in the kernel's topology, and builds with code for exact chips."""
