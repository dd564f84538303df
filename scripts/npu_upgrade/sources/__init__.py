"""A source (package index, git ref, folder) as a read-only tree; releases, pairs and pins.

Knows nothing of Python code or of upgrading; nothing it reads is imported, built or run.
"""
