"""Apple: the one GPU of a Mac with Apple silicon, which the one build for macOS runs on through Metal (MPS)."""
