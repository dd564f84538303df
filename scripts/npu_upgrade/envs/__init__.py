"""Python environments in the cache folder; nothing else in the project creates one."""
