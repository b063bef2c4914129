"""Parameters of a wrapped model: where a program goes over them, gathers them, and computes with them."""
