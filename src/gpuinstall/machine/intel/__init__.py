"""Intel: detection of GPUs on the PCI bus, and rules for XPU builds."""
