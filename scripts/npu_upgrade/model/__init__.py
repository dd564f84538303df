"""What a checkpoint is: its configuration, its weight files, what serves it, and what it needs of memory.

Reads files only. No torch, no transformers, no vLLM is imported, and no code of a checkpoint is run.
"""
