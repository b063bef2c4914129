"""The resumable program as a module of a package: `python -m jobs.train`, under torchrun or under SLURM."""

from resumable import main

from .slurm import take_place

if __name__ == "__main__":
    take_place()
    main()
