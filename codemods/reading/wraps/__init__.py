"""The constructor call, and what it is given."""
