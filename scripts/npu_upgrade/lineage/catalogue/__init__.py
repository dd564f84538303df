"""Lists the omni-specific blocks of the runners, derived from the difference to upstream."""
