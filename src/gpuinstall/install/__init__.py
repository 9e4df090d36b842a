"""One transaction for our environments and those of others: prepare, verify, commit, abort; and roll back.

``install`` makes an environment of ours beside the one in force and exchanges the two (``swap.py``). ``install_into``
changes another's in place, and ``undo.py`` has the copy of what was before. After any failure, and after a kill at any
line, the environment is as it was, or complete. ``start.py`` and ``scripts.py`` choose the environment that ``run``
starts in, ``removal.py`` removes what is no longer needed.
"""
