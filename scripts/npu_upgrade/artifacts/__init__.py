"""What a model's readers get, from evidence only: configuration, tutorial, reports."""
