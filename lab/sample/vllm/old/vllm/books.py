class StepBook:
    def __init__(self):
        self.rows = []

    def note(self, tokens):
        self.rows.append(tokens)
