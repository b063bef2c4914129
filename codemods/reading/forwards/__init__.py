"""What runs a model, and whether a backward follows."""
