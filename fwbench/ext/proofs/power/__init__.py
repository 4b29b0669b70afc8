"""The power of a proof: the mistakes that it finds of those planted in the candidate's own program, one at a time."""
