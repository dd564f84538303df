"""The delivery of an adapted model: changes of the implementation roots, as one commit elsewhere."""
