"""What really happens in a program, against what the tool says of it."""
