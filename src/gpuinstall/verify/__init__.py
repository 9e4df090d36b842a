"""The proof: kernels that run inside the target environment, and the runner outside it."""
