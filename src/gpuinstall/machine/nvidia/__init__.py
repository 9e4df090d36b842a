"""NVIDIA: detection of GPUs and drivers, and rules for CUDA builds."""
