"""What runs inside the target environment: any Python from 3.8 and torch from 1.13, nothing else."""
