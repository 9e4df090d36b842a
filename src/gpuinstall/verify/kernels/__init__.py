"""Code in the target environment, with Python >=3.8 and torch >=1.13."""
