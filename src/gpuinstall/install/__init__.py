"""Installation of packages, with a rollback journal.

``install`` changes a managed environment and ``install_into`` an unmanaged one. uv writes
into a staging folder (``unpack.py``). ``file_change.py`` plans the files of a change,
``transaction.py`` applies it with a journal (``journal.py``) or rolls it back, and
``environment_lock.py`` recovers a killed one. ``start.py`` selects the environment of
``run --any``, ``moved.py`` updates a moved one, and ``removal.py`` removes them.
"""
