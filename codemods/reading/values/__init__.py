"""Values: what a program chooses from, stores in attributes, and leaves at its default."""
