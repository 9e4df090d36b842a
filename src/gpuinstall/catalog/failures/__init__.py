"""Table of failures: signs in error messages, causes, and fixes by machine."""
