"""One transaction for our environments and those of others: prepare, verify, commit, abort; and roll back.

``install`` makes an environment of ours, ``install_into`` changes another's. After any failure, and after
a kill at any line, the environment is as it was before, or complete.
"""
