"""Stands for srun: starts a command N times, with SLURM's variables and none of torchrun's."""

import os
import socket
import subprocess
import sys

with socket.socket() as s:
    s.bind(("localhost", 0))
    port = str(s.getsockname()[1])
tasks = int(sys.argv[1])
shared = {**os.environ, "SLURM_NTASKS": str(tasks), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
started = [
    subprocess.Popen(sys.argv[2:], env={**shared, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)})
    for task in range(tasks)
]
sys.exit(max(process.wait() for process in started))
