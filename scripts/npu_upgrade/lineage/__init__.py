"""What each unit of a downstream is to its upstream: copy, override, patch, mirror or its own."""
