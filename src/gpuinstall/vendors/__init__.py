"""The makers of GPUs: what differs between them, each behind the same protocols."""
