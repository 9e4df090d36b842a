"""What is NVIDIA's own: which facts its machines have, and what is wrong with them."""
