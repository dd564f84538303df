"""What was judged, with what result: one chain of records, a folder for each run, packs."""
