"""The one store of Python environments, in the cache folder."""
