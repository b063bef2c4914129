"""`python -m fsdp_migrate`."""

import os
import sys

if __name__ == "__main__":
    # Python puts the current folder first: a `json.py` or `torch.py` of the user's must not be imported from there.
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.path[0] in ("", os.getcwd()) and os.getcwd() != home:
        del sys.path[0]

    from fsdp_migrate.cli import main

    main()
