"""What a training loop does with the wrapped model: accumulating, clipping, gathering parameters: one rule a file."""
