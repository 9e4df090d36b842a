"""Apple: detection of Apple silicon GPUs, and rules for Metal (MPS) builds."""
