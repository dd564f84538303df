"""The command line that all programs share: dispatch, parsing, rendering."""
