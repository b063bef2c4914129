"""What becomes of gradients: sums, norms, clipping, and what was dropped."""
