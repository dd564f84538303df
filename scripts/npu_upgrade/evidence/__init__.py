"""The evidence of runs: a folder and a ledger line for each, and packs that travel between machines."""
