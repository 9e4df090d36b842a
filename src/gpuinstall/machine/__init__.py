"""Reading a machine, and what its GPUs run by the rules of their makers.

``read_machine`` asks files, variables and drivers through a ``Source``, which a recording can replace;
``preflight`` runs a small kernel through the driver. ``rules_for`` a GPU's maker are pure: they say which
code and which driver a build needs.
"""
