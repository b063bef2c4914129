"""What a program does with FSDP1: which name means what, where a value is made, what holds a wrapped model."""
