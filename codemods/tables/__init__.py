"""What is known about FSDP1 and FSDP2, as data: one test a row."""
