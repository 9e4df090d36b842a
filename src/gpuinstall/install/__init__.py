"""Install packages, and keep a journal from which a change can be rolled back.

``install`` is one pipeline: ``inspection.py`` reads the environment and the request,
``selection.py`` selects or resolves a lock file, ``price.py`` computes changes and sizes,
``unpack.py`` unpacks new packages into a staging folder, ``proof.py`` verifies them, and
``transaction.py`` applies the change with a journal (``journal.py``) or rolls it back.
``file_change.py`` plans the files, ``environment_lock.py`` recovers a killed command,
``unmanaged.py`` inspects an environment for ``--into``, ``moved.py`` updates a moved one,
``start.py`` selects the environment of ``run --any``, and ``removal.py`` removes them.
"""
