"""What runs inside the target environment: any Python from 3.8, torch from 1.13, and the programs beside it."""
