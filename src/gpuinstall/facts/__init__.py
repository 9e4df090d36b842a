"""What is read of a machine, whoever made its GPUs: files, variables, and the answers of programs."""
