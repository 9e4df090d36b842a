"""The one table of failures, and how an entry of it is found and said."""
