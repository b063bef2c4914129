"""The text of a program: names, shapes, what stands around a node, and what runs before and behind it."""
