"""Optimizers: who makes one, when it steps, and how its state is read and loaded."""
