"""Which class a model has: tests for FSDP's and DDP's class, and the module inside of a wrapper."""
