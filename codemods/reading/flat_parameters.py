"""Whether FSDP1 kept one flat parameter for a unit, as it did without `use_orig_params=True`."""

from __future__ import annotations

import libcst as cst

from codemods.reading.manual import arguments, is_constructor
from codemods.vocabulary import File


def had_flat_parameters(model: cst.BaseExpression, file: File) -> bool:
    """Whether each constructor call that a model is seen to come from made flat parameters."""
    made = [(o.file, o.node) for o in file.origins(model) if isinstance(o.node, cst.Call)]
    calls = [(where, call) for where, call in made if is_constructor(where, call)]
    return bool(calls) and all(makes_flat_parameters(where, call) for where, call in calls)


def makes_flat_parameters(file: File, call: cst.Call) -> bool:
    """Whether a constructor call is seen not to say `use_orig_params=True`."""
    passed = arguments(file, call)
    if any(argument.star for argument in passed):
        return False
    given = [a.value for a in passed if a.keyword is not None and a.keyword.value == "use_orig_params"]
    return all(o.node is not None and o.file.code(o.node) == "False" for value in given for o in file.origins(value))
