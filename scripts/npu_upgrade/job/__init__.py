"""One job: its stages and their state, what is open, what was answered, what comes next."""
