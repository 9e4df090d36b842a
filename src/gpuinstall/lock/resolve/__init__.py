"""The resolver: a question, what is known, and a list of alternatives."""
