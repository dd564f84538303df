"""One job: its workspace and stages, what is open, what was answered, and what comes next."""
