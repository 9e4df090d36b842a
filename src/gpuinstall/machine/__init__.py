"""Detection of the machine, and each vendor's rules for builds.

``read_machine`` reads files, variables, and drivers through a ``Source``, which a
recording can replace. ``preflight`` runs a small kernel through the driver.
``create_rules`` returns a vendor's rules: the GPU code and driver that builds need.
"""
