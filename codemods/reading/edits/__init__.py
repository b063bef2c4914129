"""Edits that several rules make, in the layout of the text around them."""
