"""What every room stands on: verdicts, errors, commands, files, progress, tables."""
