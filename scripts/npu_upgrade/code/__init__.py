"""One file of Python: statements, names, signatures, imports, sequences."""
