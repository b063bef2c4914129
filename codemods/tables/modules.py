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

_OF_MODULE = """
T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval
extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia
named_buffers named_children named_modules named_parameters parameters register_backward_hook register_buffer
register_forward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory
state_dict to to_empty train type xpu zero_grad
"""
OF_MODULE = frozenset(_OF_MODULE.split())
"""What each module has, and so FSDP1's wrapper: it did not ask the model inside of it for them."""
