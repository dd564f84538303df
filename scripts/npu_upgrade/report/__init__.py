"""One self-contained HTML page of a job, for a person to look at."""
