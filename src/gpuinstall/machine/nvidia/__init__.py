"""NVIDIA's GPUs: their drivers, their code, CUDA."""
