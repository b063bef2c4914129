"""What the analysis of Python has to know of FSDP1."""

from __future__ import annotations

from codemods.tables.leftovers import BY_NAME
from codemods.tables.modules import OF_MODULE
from codemods.tables.names import FSDP1, FSDP2, PACKAGE, WRAPPER, fsdp1_name

from ..pyanalysis.library import Library

LIBRARY = Library(
    wrapper=WRAPPER,
    is_wrapper=lambda dotted: fsdp1_name(dotted) == WRAPPER,
    is_model_class=lambda dotted: fsdp1_name(dotted) == WRAPPER or dotted.endswith(".DistributedDataParallel"),
    is_beside=lambda dotted: dotted.rpartition(".")[2] == "FSDPModule",
    gives_wrappers=lambda dotted: fsdp1_name(dotted) == f"{WRAPPER}.fsdp_modules",
    own=OF_MODULE | BY_NAME,
    inner=frozenset({"module", "_orig_mod", "_fsdp_wrapped_module"}),
    exports=lambda module, name: module.startswith(PACKAGE) and name in FSDP1 | FSDP2,
)
