"""One module for each kind of stage: ``start``, ``run``, ``classes`` and ``reference``."""
