"""Reading Python source as text and trees: modules, methods, logical statements, names.

Knows nothing of vLLM, and never imports or executes what it reads.
"""
