"""The table of failures: signs in texts, causes, and fixes by machine."""
