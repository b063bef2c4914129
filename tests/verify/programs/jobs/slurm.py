"""What a program for SLURM does before it makes its process group."""

import os


def take_place() -> None:
    for ours, theirs in (("RANK", "PROCID"), ("LOCAL_RANK", "LOCALID"), ("WORLD_SIZE", "NTASKS")):
        if ours not in os.environ:
            os.environ[ours] = os.environ[f"SLURM_{theirs}"]
