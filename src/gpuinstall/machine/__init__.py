"""Reading a machine: files, variables and the answers of its drivers, and what its GPUs run by the rules of their makers."""
