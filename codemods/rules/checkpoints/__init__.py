"""Saving and loading the wrapped model and its optimizer: one rule a file."""
