"""What each unit of a downstream is to its upstream: copy (with its base), override, patch, mirror."""
