"""The one table of failures, and how an entry is recognised in a text and said for one machine."""
