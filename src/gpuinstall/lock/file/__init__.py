"""PEP 751 locks: read, written, compared, judged for a machine; their files, and what hashes them."""
