"""Checks of the runners on real vLLM, for the tests and ``make bench-runners``; they run where vLLM is."""
