"""What a job leaves behind: its state, its evidence, and the one commit it delivers."""
