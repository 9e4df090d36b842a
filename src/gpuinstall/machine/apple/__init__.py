"""Apple: the GPU of a Mac with Apple silicon, used through Metal (MPS)."""
