"""Wheels that are not here, read in parts: what GPU code they hold, for a hundredth of their size.

``learned.reader.Reader`` reads within a budget, ``learned.store`` keeps the rows for this user, and
``WheelFacts`` is all that the rules of other rooms see of the bytes.
"""
