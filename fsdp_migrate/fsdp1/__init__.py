"""What a program does with FSDP1, as its sources alone tell."""
