"""One lock to make: uv decides, and is told what METADATA leaves out."""
