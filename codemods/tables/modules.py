"""Methods of `torch.nn.Module` and of libraries' models by what they do to parameters: which of a program these are is
asked by name, since the class of a model is rarely seen.
"""

from __future__ import annotations

GIVE_IT_BACK = frozenset(
    {"bfloat16", "cpu", "cuda", "double", "eval", "float", "half", "requires_grad_", "to", "train"}
)
"""They give the module that they are called on."""
KEEP_PARAMETERS = GIVE_IT_BACK | {
    "buffers",
    "children",
    "enable_input_require_grads",
    "get_input_embeddings",
    "gradient_checkpointing_enable",
    "load_state_dict",
    "modules",
    "named_buffers",
    "named_children",
    "named_modules",
    "named_parameters",
    "num_parameters",
    "parameters",
    "state_dict",
}
"""They leave it with the parameters that it has."""
