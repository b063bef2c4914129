"""Layers of `torch.nn` that have no parameters."""

from __future__ import annotations

import re

BARE = re.compile(
    r"Loss$|^(?:Dropout|Identity|Flatten|Softmax|LogSoftmax|Sigmoid|Tanh|(?:Leaky)?ReLU|GELU|SiLU|.*Pool)"
)
