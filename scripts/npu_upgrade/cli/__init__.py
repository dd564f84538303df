"""The command line of all programs: dispatch, parsing, rendering."""
