"""Move PyTorch training programs from FSDP1 to FSDP2, and prove that they train the same."""

__version__ = "0.1.0"
