"""One transaction for our environments and those of others: look, fetch, prove, journal, apply, commit or put back.

``install`` changes an environment of ours, ``install_into`` one of others. ``unpack.py`` has uv write beside the
environment, ``file_change.py`` says which files come and go, ``transaction.py`` moves them, with a journal
(``journal.py``), and goes back. After any failure the environment is as it was, and after a kill the next
run makes it so, or complete (``hold.py``). ``start.py`` selects the environment that ``run`` starts in,
``moved.py`` settles one that was moved, ``removal.py`` removes what is no longer needed.
"""
