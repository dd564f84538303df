"""What a checkpoint answers by Transformers, and whether a server answers the same."""
