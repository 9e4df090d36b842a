"""AMD: detection of GPUs through KFD, and rules for ROCm builds."""
