"""FM101 and FM103: `mixed_precision`, written inside the constructor call or kept in a variable."""

from __future__ import annotations

import textwrap

import pytest

from codemods.api import Level

from ..helpers import check_noop, check_transformed, code, flat, rewrite, rewrite_files

HEAD = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from net import Block


"""


def test_fsdp2_policy_is_left_alone() -> None:
    check_noop(
        "from torch.distributed.fsdp import MixedPrecisionPolicy\nmp = MixedPrecisionPolicy(param_dtype=dtype)\n"
    )


def test_same_name_of_another_library_is_left_alone() -> None:
    check_noop("from other import MixedPrecision\nmp = MixedPrecision(param_dtype=1)\n")


KEPT = [
    ("param_dtype=torch.bfloat16", "param_dtype=torch.bfloat16"),
    ("reduce_dtype=torch.float32", "reduce_dtype=torch.float32"),
    ("torch.bfloat16, torch.float32", "param_dtype=torch.bfloat16, reduce_dtype=torch.float32"),
    ("torch.bfloat16, reduce_dtype=None", "param_dtype=torch.bfloat16"),
    ("", ""),
    ("param_dtype=dtype", "param_dtype=dtype"),
    ("param_dtype=torch.float16, keep_low_precision_grads=False", "param_dtype=torch.float16"),
    ("param_dtype=torch.float16, cast_root_forward_inputs=True", "param_dtype=torch.float16"),
]


@pytest.mark.parametrize(("given", "kept"), KEPT)
def test_without_inner_units(given: str, kept: str) -> None:
    before = HEAD + f"def wrap(model, dtype):\n    return FSDP(model, mixed_precision=MixedPrecision({given}))\n"
    result = rewrite(before)
    body = f"    mp_policy = MixedPrecisionPolicy({kept})\n    return fully_shard(model, mp_policy=mp_policy)\n"
    assert result.text.endswith(body)
    assert [level for _, level, _ in result.summary] == ["rewritten"]


def test_inputs_are_cast_at_the_root_only() -> None:
    check_transformed(
        HEAD
        + code(
            """
            def wrap(model):
                return FSDP(
                    model,
                    auto_wrap_policy=ModuleWrapPolicy({Block}),
                    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16),
                )
            """
        ),
        code(
            """
            from dataclasses import replace

            import torch
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            from net import Block


            def wrap(model):
                mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
                # Inputs are cast at the root only.
                block_mp_policy = replace(mp_policy, cast_forward_inputs=False)
                for module in model.modules():
                    if module is not model and isinstance(module, Block):
                        fully_shard(module, mp_policy=block_mp_policy)
                return fully_shard(model, mp_policy=mp_policy)
            """
        ),
        Level.REVIEW,  # a model of which nothing is seen may hold BatchNorm
    )


def test_inputs_are_cast_everywhere_where_fsdp1_did() -> None:
    call = "MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True)"
    before = (
        HEAD
        + f"def wrap(m):\n    return FSDP(m, auto_wrap_policy=ModuleWrapPolicy({{Block}}), mixed_precision={call})\n"
    )
    result = rewrite(before)
    assert "replace" not in result.text
    assert "fully_shard(module, mp_policy=mp_policy)" in result.text
    assert "fully_shard(m, mp_policy=mp_policy)" in result.text


def test_names_that_are_taken_are_not_used() -> None:
    call = "MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)"
    body = code(
        f"""
        def wrap(m, mp_policy, block_mp_policy, buffer):
            mp_policy(block_mp_policy, buffer)
            return FSDP(m, auto_wrap_policy=ModuleWrapPolicy({{Block}}), mixed_precision={call})
        """
    )
    result = rewrite(HEAD + body)
    assert "    fsdp_mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)\n" in result.text
    assert "    block_mp_policy_2 = replace(fsdp_mp_policy, cast_forward_inputs=False)\n" in result.text
    assert "    for module_buffer in m.buffers():\n" in result.text


def test_buffers_are_cast_before_sharding() -> None:
    given = "param_dtype=torch.bfloat16, buffer_dtype=torch.float16"
    check_transformed(
        code(
            f"""
            import torch
            from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

            mp = MixedPrecision({given})


            def wrap(model):
                model = FullyShardedDataParallel(model, mixed_precision=mp)
                return model
            """
        ),
        code(
            """
            import torch
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16)


            def wrap(model):
                for buffer in model.buffers():
                    if buffer.is_floating_point():
                        buffer.data = buffer.data.to(torch.float16)
                fully_shard(model, mp_policy=mp)
                return model
            """
        ),
        Level.REVIEW,
    )


def test_policy_that_may_be_none() -> None:
    body = code(
        """
        def wrap(model, bf16):
            mp = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16) if bf16 else None
            return FSDP(model, mixed_precision=mp)
        """
    )
    result = rewrite(HEAD + body)
    assert result.text.endswith(
        code(
            """
            def wrap(model, bf16):
                mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if bf16 else MixedPrecisionPolicy()
                if mp.param_dtype is not None:
                    for buffer in model.buffers():
                        if buffer.is_floating_point():
                            buffer.data = buffer.data.to(mp.param_dtype)
                return fully_shard(model, mp_policy=mp)
            """
        )
    )


LAYOUTS = [
    pytest.param(
        "mp = MixedPrecision(\n    param_dtype=torch.bfloat16,  # weights\n    buffer_dtype=torch.float32,\n)",
        "mp = MixedPrecisionPolicy(\n    param_dtype=torch.bfloat16,  # weights\n)",
        id="one argument a line, with a comment",
    ),
    pytest.param(
        "mp = MixedPrecision(\n    # weights\n    param_dtype=torch.bfloat16,\n"
        "    # buffers\n    buffer_dtype=torch.float32,\n)",
        "mp = MixedPrecisionPolicy(\n    # weights\n    param_dtype=torch.bfloat16,\n)",
        id="a comment above each",
    ),
    pytest.param(
        "mp = MixedPrecision(\n    # all\n    buffer_dtype=torch.float32,\n    param_dtype=torch.bfloat16,\n)",
        "mp = MixedPrecisionPolicy(\n    # all\n    param_dtype=torch.bfloat16,\n)",
        id="a comment above both",
    ),
    pytest.param(
        "mp = MixedPrecision(\n    # Buffer precision.\n    buffer_dtype=torch.float32,\n"
        "    param_dtype=torch.bfloat16,\n)",
        "mp = MixedPrecisionPolicy(\n    param_dtype=torch.bfloat16,\n)",
        id="a comment that names the one below it",
    ),
    pytest.param(
        "mp = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.float32)",
        "mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16)",
        id="the last of one line",
    ),
    pytest.param(
        "mp = MixedPrecision(buffer_dtype=torch.float32, param_dtype=torch.bfloat16)",
        "mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16)",
        id="the first of one line",
    ),
    pytest.param(
        "mp = MixedPrecision(torch.bfloat16, torch.float32, torch.float32)",
        "mp = MixedPrecisionPolicy(torch.bfloat16, torch.float32)",
        id="by position",
    ),
    pytest.param(
        "mp = MixedPrecision(torch.bfloat16, buffer_dtype=torch.float32, cast_forward_inputs=True)",
        "mp = MixedPrecisionPolicy(torch.bfloat16)",
        id="the last two of one line",
    ),
    pytest.param(
        "mp = MixedPrecision(buffer_dtype=torch.float32, param_dtype=torch.bfloat16, cast_forward_inputs=True)",
        "mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16)",
        id="the first and the last of one line",
    ),
    pytest.param(
        "mp = MixedPrecision(buffer_dtype=torch.float32, cast_forward_inputs=True,)",
        "mp = MixedPrecisionPolicy()",
        id="both of one line",
    ),
    pytest.param(
        "mp = MixedPrecision(param_dtype=torch.bfloat16,\n                    buffer_dtype=torch.float32,\n"
        "                    cast_forward_inputs=True)",
        "mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16)",
        id="the last two below one another",
    ),
    pytest.param(
        "mp = MixedPrecision(param_dtype=torch.bfloat16,\n                    buffer_dtype=torch.float32,\n"
        "                    reduce_dtype=torch.float32)",
        "mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16,\n                          reduce_dtype=torch.float32)",
        id="one of those below one another",
    ),
    pytest.param(
        "mp = MixedPrecision(buffer_dtype=torch.float32,\n                    param_dtype=torch.bfloat16,\n"
        "                    reduce_dtype=torch.float32)",
        "mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16,\n                          reduce_dtype=torch.float32)",
        id="the first of those below one another",
    ),
    pytest.param(
        "mp = MixedPrecision(buffer_dtype=torch.float32,)", "mp = MixedPrecisionPolicy()", id="nothing is left"
    ),
    pytest.param(
        "mp = MixedPrecision(\n    buffer_dtype=torch.float32, param_dtype=torch.bfloat16,\n    reduce_dtype=None)",
        "mp = MixedPrecisionPolicy(\n    param_dtype=torch.bfloat16,\n    reduce_dtype=None)",
        id="several a line",
    ),
]


def test_none_that_two_calls_are_given_becomes_a_policy_where_it_is_written() -> None:
    body = code(
        """
        def wrap(a, b, amp):
            mp = None
            if amp:
                mp = MixedPrecision(param_dtype=torch.bfloat16)
            a = FSDP(a, auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=mp)
            return a, FSDP(b, auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=mp)
        """
    )
    text = rewrite(HEAD + body).text
    assert "    mp = MixedPrecisionPolicy()\n    if amp:\n" in text
    assert "    fully_shard(a, mp_policy=mp)\n" in text
    assert "    fully_shard(b, mp_policy=mp)\n" in text


def test_none_that_something_else_asks_for_stays() -> None:
    body = code(
        """
        def wrap(model, amp):
            mp = None
            if amp:
                mp = MixedPrecision(param_dtype=torch.bfloat16)
            if mp is None:
                print("full precision")
            return FSDP(model, mixed_precision=mp)
        """
    )
    text = rewrite(HEAD + body).text
    assert "    mp = None\n" in text
    assert "    mp_policy = mp or MixedPrecisionPolicy()\n" in text


def test_a_comment_on_several_fields_that_go_goes_with_them() -> None:
    body = code(
        """
        def wrap(model):
            precision = MixedPrecision(
                # Gradients too.
                param_dtype=torch.bfloat16,
                # Buffers.
                buffer_dtype=torch.bfloat16,
                cast_forward_inputs=True,
            )
            return FSDP(model, mixed_precision=precision)
        """
    )
    text = rewrite(HEAD + body).text
    assert "        # Gradients too.\n        param_dtype=torch.bfloat16,\n    )\n" in text


def test_what_is_said_of_a_field_goes_where_the_field_goes() -> None:
    body = code(
        """
        def wrap(model):
            kwargs = {}
            kwargs["mixed_precision"] = MixedPrecision(
                param_dtype=torch.bfloat16,
                reduce_dtype=torch.float32,  # for stability
                cast_forward_inputs=True,  # everywhere
            )
            return FSDP(model, **kwargs)
        """
    )
    text = rewrite(HEAD + body).text
    assert "        param_dtype=torch.bfloat16,\n        reduce_dtype=torch.float32,  # for stability\n    )\n" in text


def test_precision_that_fits_on_one_line_now_stands_on_one() -> None:
    body = code(
        """
        def wrap(model):
            precision = MixedPrecision(
                param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, cast_forward_inputs=True
            )
            return FSDP(model, mixed_precision=precision)
        """
    )
    line = "    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)\n"
    assert line in rewrite(HEAD + body).text


@pytest.mark.parametrize(("before", "after"), LAYOUTS)
def test_definition_keeps_its_layout(before: str, after: str) -> None:
    result = rewrite(HEAD + before + "\n\n\ndef wrap(model):\n    return FSDP(model, mixed_precision=mp)\n")
    assert f"\n{after}\n\n\ndef wrap" in result.text


def test_definition_in_another_file() -> None:
    result = rewrite_files(
        {
            "train.py": code(
                """
                from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

                import settings


                def wrap(model):
                    return FSDP(model, mixed_precision=settings.BF16)
                """
            ),
            "settings.py": code(
                """
                import torch
                from torch.distributed.fsdp import MixedPrecision

                BF16 = MixedPrecision(param_dtype=torch.bfloat16)
                """
            ),
        }
    )
    assert "BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16)\n" in result.after["settings.py"]
    assert "settings.BF16" in result.after["train.py"]
    assert result.support == frozenset()


def test_one_of_several_definitions() -> None:
    body = code(
        """
        def wrap(model, half):
            if half:
                mp = MixedPrecision(param_dtype=torch.float16)
            else:
                mp = MixedPrecision(param_dtype=torch.bfloat16)
            return FSDP(model, mixed_precision=mp)
        """
    )
    result = rewrite(HEAD + body)
    expected = body.replace("MixedPrecision(", "MixedPrecisionPolicy(").replace("FSDP(", "fully_shard(")
    assert result.text.endswith(expected.replace("mixed_precision=", "mp_policy="))


ODD = {
    "keep_low_precision_grads=True": {"unit_mp_policy"},  # which raises
    "_module_classes_to_ignore=(Block,)": set[str](),  # without a policy nothing is left out of the one unit
    "cast_root_forward_inputs=False": set[str](),
    "cast_forward_inputs=dtype": set[str](),  # those of the root are cast anyway
    "**dtype": {"unit_mp_policy"},
}


@pytest.mark.parametrize("field", ODD)
def test_what_only_run_time_knows_is_read_there_also_where_it_is_written_in_the_call(field: str) -> None:
    call = f"MixedPrecision(param_dtype=torch.bfloat16, {field})"
    result = rewrite(HEAD + f"def wrap(model, dtype):\n    return FSDP(model, mixed_precision={call})\n")
    assert "    return fully_shard(model, mp_policy=" in result.text
    assert result.support == ODD[field]


def test_inputs_that_are_cast_nowhere() -> None:
    call = "MixedPrecision(param_dtype=torch.bfloat16, cast_root_forward_inputs=False)"
    text = rewrite(HEAD + f"def wrap(model):\n    return FSDP(model, mixed_precision={call})\n").text
    assert "    fsdp_mp_policy = replace(mp_policy, cast_forward_inputs=False)\n" in text
    assert "    return fully_shard(model, mp_policy=fsdp_mp_policy)\n" in text


def test_buffer_dtype_that_may_be_none() -> None:
    call = "MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=dtype)"
    text = rewrite(HEAD + f"def wrap(model, dtype):\n    return FSDP(model, mixed_precision={call})\n").text
    assert "    if dtype is not None:\n        for buffer in model.buffers():\n" in text
    named = text_of_dtype("dtype = getattr(torch, dtype)", call)
    assert "    for buffer in model.buffers():\n" in named
    assert "dtype is not None" not in named
    assert "    if dtype is not None:\n" in text_of_dtype("dtype = getattr(torch, dtype, None)", call)
    assert "is not None" not in text_of_dtype("dtype = getattr(torch, dtype, torch.bfloat16)", call)


def text_of_dtype(line: str, call: str) -> str:
    return rewrite(HEAD + f"def wrap(model, dtype):\n    {line}\n    return FSDP(model, mixed_precision={call})\n").text


BY_ITS_TEST = {
    "lib.py": HEAD
    + "def wrap(model):\n    mp = MixedPrecision(torch.float16, buffer_dtype=torch.float16)\n"
    + "    return FSDP(model, mixed_precision=mp)\n",
    "test_lib.py": "from torch import nn\n\nfrom lib import wrap\n\n\ndef test_wrap():\n    wrap(nn.Linear(2, 2))\n",
}


def test_a_model_that_a_test_makes_says_nothing_of_others() -> None:
    """A library's buffers were not cast, since the linear layer of its test has none (ShallowFlow)."""
    assert "for buffer in model.buffers():" in rewrite_files(BY_ITS_TEST).after["lib.py"]
    script = {"lib.py": BY_ITS_TEST["lib.py"], "train.py": BY_ITS_TEST["test_lib.py"]}
    assert "buffers()" not in rewrite_files(script).after["lib.py"]


OF_A_LIBRARY = """
class Module(LightningModule):
    def wrap(self, net, teacher):
        strategy = self.trainer.strategy
        self.model = FSDP(net, mixed_precision=strategy.mixed_precision_config)
        self.teacher = FSDP(teacher, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
"""


def test_buffer_dtype_of_a_precision_that_a_library_makes() -> None:
    """Buffers stayed in float32, since no MixedPrecision of the program has a buffer_dtype (fmchisel)."""
    text = rewrite(HEAD + OF_A_LIBRARY).text
    assert "    if mixed_precision is not None and mixed_precision.buffer_dtype is not None:\n" in text
    assert text.count("buffers()") == 1


def test_a_precision_that_is_always_made_is_not_asked_whether_it_is_there() -> None:
    text = """
        def wrapper(config):
            mp = MixedPrecision(param_dtype=config.param_dtype, buffer_dtype=config.buffer_dtype)
            config.log(mp.buffer_dtype)
            return partial(FSDP, mixed_precision=mp)


        def main(net, config):
            return wrapper(config)(net)
        """
    text = rewrite("from functools import partial\n" + HEAD + code(text)).text
    assert "if mp.buffer_dtype is not None" in text
    assert "mp is not None" not in text


NETS = {
    "its own layer": ("nn.BatchNorm2d", "nn.BatchNorm2d(3)"),
    "a class that is passed on": ("nn.BatchNorm1d", "Stem(nn.BatchNorm1d)"),
    "a default": ("nn.BatchNorm3d", "Other()"),
    "a library's": ("_BatchNorm", "timm.create_model('resnet50')"),
    "a transformer's, behind convolutions": ("_BatchNorm", "timm.create_model('vit_base_resnet50_384')"),
    "layers of several classes": ("_BatchNorm", "nn.ModuleList([nn.BatchNorm1d(2), nn.BatchNorm2d(3)])"),
}
CLASSES = """\
import timm
from torch import nn

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    pass


class Stem(nn.Module):
    def __init__(self, norm_layer):
        self.norm = norm_layer(2)


class Other(nn.Module):
    def __init__(self, norm_layer=nn.BatchNorm3d):
        self.norm = norm_layer(2)


class Net(nn.Module):
    def __init__(self):
        self.layer = NET
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        return self.net(x)


def wrap():
    model = Net()
    return FSDP(model, ARGUMENTS)
"""


def wrapped(net: str, arguments: str) -> str:
    text = CLASSES.replace("NET", net).replace("ARGUMENTS", arguments)
    return rewrite(text).text.split("    model = Net()\n")[1]


@pytest.mark.parametrize("name", NETS)
def test_batch_norm_of_the_model_keeps_units_in_float32(name: str) -> None:
    kind, net = NETS[name]
    text = wrapped(net, "auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(torch.float16)")
    assert text == (
        "    mp_policy = MixedPrecisionPolicy(param_dtype=torch.float16)\n"
        "    # Inputs are cast at the root only.\n"
        "    block_mp_policy = replace(mp_policy, cast_forward_inputs=False)\n"
        "    # BatchNorm stays in float32, in units of its own.\n"
        "    norm_mp_policy = MixedPrecisionPolicy(\n"
        "        param_dtype=torch.float32, output_dtype=mp_policy.param_dtype\n"
        "    )\n"
        "    for module in reversed(list(model.modules())):\n"
        f"        if isinstance(module, {kind}):\n"
        "            fully_shard(module, mp_policy=norm_mp_policy)\n"
        "        elif isinstance(module, Block):\n"
        "            fully_shard(module, mp_policy=block_mp_policy)\n"
        "    return fully_shard(model, mp_policy=mp_policy)\n"
    )


@pytest.mark.parametrize(
    "net",
    [
        "0\n        self.layer: VisionTransformer = timm.create_model(PATH, num_classes=0)",
        "timm.create_model('vit_base_patch16_224')",
        "VisionTransformer(depth=2)",
        "nn.Linear(2, 2)\n        self.transform = timm.data.create_transform(size)",
    ],
    ids=["as its annotation says", "by its name", "by its class", "what is no model"],
)
def test_transformers_of_timm_hold_no_batch_norm(net: str) -> None:
    text = CLASSES.replace(
        "import timm\n", "import timm\nfrom timm.models.vision_transformer import VisionTransformer\n"
    )
    arguments = "auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(torch.float16)"
    after = rewrite(text.replace("NET", net).replace("ARGUMENTS", arguments)).text
    assert "norm_mp_policy" not in after
    assert "for block in model.blocks:" in after


def test_batch_norm_without_a_policy_or_in_full_precision_is_like_the_rest() -> None:
    plain = "    mp_policy = MixedPrecisionPolicy(param_dtype=torch.float16)\n"
    text = wrapped("nn.BatchNorm2d(3)", "mixed_precision=MixedPrecision(torch.float16)")
    assert text == plain + "    return fully_shard(model, mp_policy=mp_policy)\n"
    loop = "    for block in model.blocks:\n        fully_shard(block)\n"
    text = wrapped("nn.BatchNorm2d(3)", "auto_wrap_policy=ModuleWrapPolicy({Block})")
    assert text == loop + "    return fully_shard(model)\n"


@pytest.mark.parametrize(
    ("policy", "test"),
    [
        ("policy = None\n    if big:\n        policy = ModuleWrapPolicy({Block})", "not big or "),
        ("policy = ModuleWrapPolicy({Block}) if big else None", "unit_classes is None or "),
        ("policy = get_policy(big)", "unit_classes is None or "),
        ("policy = ModuleWrapPolicy({Block})", ""),
    ],
)
def test_buffers_of_batch_norm_are_cast_where_no_policy_makes_units_of_it(policy: str, test: str) -> None:
    precision = "MixedPrecision(torch.float16, buffer_dtype=torch.float16)"
    policies = "def get_policy(big):\n    return ModuleWrapPolicy({Block}) if big else None\n\n\n"
    head = CLASSES.replace("def wrap():\n", f"{policies}def wrap(big):\n    {policy}\n")
    arguments = f"auto_wrap_policy=policy, mixed_precision={precision}"
    result = rewrite(head.replace("NET", "nn.BatchNorm2d(3)").replace("ARGUMENTS", arguments))
    assert f"        if {test}not isinstance(module, nn.BatchNorm2d):\n" in result.text


@pytest.mark.parametrize(
    ("precision", "test"),
    [
        ("MixedPrecision(torch.float16) if low else None", "precision.param_dtype is not None"),
        ("MixedPrecision(reduce_dtype=torch.float32) if low else None", "precision.reduce_dtype is not None"),
        ("MixedPrecision(param_dtype=low) if low else None", "precision.param_dtype is not None"),
        ("cfg.precision", "precision is not None"),
    ],
)
def test_batch_norm_has_units_where_there_is_mixed_precision(precision: str, test: str) -> None:
    head = CLASSES.replace("def wrap():\n", f"def wrap(low, cfg):\n    precision = {precision}\n")
    arguments = "auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=precision"
    text = rewrite(head.replace("NET", "nn.BatchNorm2d(3)").replace("ARGUMENTS", arguments)).text
    assert f"    float32_classes = nn.BatchNorm2d if {test} else ()\n" in text
    assert "        if isinstance(module, float32_classes):\n" in text


def test_batch_norm_of_another_model_says_nothing() -> None:
    arguments = "auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(torch.float16)"
    assert "_BatchNorm" not in wrapped("nn.LayerNorm(2)", arguments)


def test_what_is_assumed_of_a_model_that_is_not_seen_is_said() -> None:
    arguments = "auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(torch.float16)"
    text = f"norm = torch.nn.BatchNorm2d\n\n\ndef wrap(m):\n    return FSDP(m, {arguments})\n"
    (found,) = [found for found in rewrite(HEAD + text).findings if found.rule == "FM101"]
    assert found.level is Level.REVIEW
    assert "`m` is taken to hold no BatchNorm" in found.message
    assert found.hint == "check proves it"


@pytest.mark.parametrize(
    "part", ['getattr(importlib.import_module(path), "Net")()', "hydra.utils.instantiate(path)", "build(path)"]
)
def test_a_part_that_is_found_by_its_name_may_hold_some(part: str) -> None:
    arguments = "auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(torch.float16)"
    head = "import importlib\nimport hydra\n" + HEAD.replace("torch.nn.BatchNorm2d", "torch.nn.LayerNorm")
    build = "def build(path):\n    return importlib.import_module(path).Net()\n\n\n"
    net = f"class Net(torch.nn.Module):\n    def __init__(self, path):\n        self.part = {part}\n\n\n"
    text = f"{head}{build}{net}def wrap(path):\n    return FSDP(Net(path), {arguments})\n"
    (found,) = [found for found in rewrite(text).findings if found.rule == "FM101"]
    assert "is taken to hold no BatchNorm" in found.message


def test_settings_that_say_a_buffer_dtype_are_no_precision() -> None:
    """As in DINOv2 and its copies: the fields were read off a `MixedPrecision` that stayed."""
    precision = "MixedPrecision(torch.bfloat16, buffer_dtype=cfg.mixed_precision.buffer_dtype)"
    text = f"def wrap(m, cfg):\n    precision = {precision}\n    return FSDP(m, mixed_precision=precision)\n"
    after = rewrite(HEAD + text).text
    assert "    precision = MixedPrecisionPolicy(torch.bfloat16)\n" in after
    assert "buffer.data = buffer.data.to(cfg.mixed_precision.buffer_dtype)" in after
    kept = rewrite(HEAD + text.replace("    return", "    cfg.use(m.mixed_precision.buffer_dtype)\n    return")).text
    assert f"    precision = {precision}\n" in kept


def test_the_same_hint_of_two_arguments_is_said_once() -> None:
    arguments = "auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(torch.float16)"
    teacher = "def teacher():\n    with torch.device('meta'):\n        return torch.nn.Linear(2, 2)\n\n\n"
    text = f"norm = torch.nn.BatchNorm2d\n\n\n{teacher}def wrap(m):\n    return FSDP(m, {arguments})\n"
    (found,) = [found for found in rewrite(HEAD + text).findings if found.rule == "FM101"]
    assert found.message.count("`m` is taken to") == 2
    assert found.hint == "check proves it"


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ("torch.bfloat16, torch.bfloat16", Level.REWRITTEN),
        ("torch.bfloat16, buffer_dtype=None", Level.REWRITTEN),
        ("torch.bfloat16, torch.bfloat16, torch.bfloat16", Level.REVIEW),
        ("buffer_dtype=torch.bfloat16", Level.REVIEW),
    ],
)
def test_dtype_of_saved_buffers_is_said_of_the_support_module_too(fields: str, level: Level) -> None:
    call = f"FSDP(model, mixed_precision=MixedPrecision({fields}), sharding_strategy=strategy)"
    found = rewrite(
        "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision\n\n\n"
        f"def wrap(model, strategy):\n    return {call}\n"
    ).findings[0]
    assert found.level is level
    assert ("FSDP2 saves what is in the model" in found.message) == (level is Level.REVIEW)


@pytest.mark.parametrize("use", ["", "    print(cfg)\n"])
@pytest.mark.parametrize("chosen", ["", " if half else None"])
def test_buffers_of_a_precision_out_of_a_dict_are_cast(use: str, chosen: str) -> None:
    """The wrap that spreads the dict uses it: nothing is left for the definition to say."""
    text = f"""
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


def shard(model, half):
    cfg = dict(mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16){chosen})
{use}    return FSDP(model, **cfg)
"""
    result = rewrite(text)
    assert "model.buffers()" in result.text
    assert not [f for f in result.findings if "no constructor call is seen" in f.message]


def test_a_precision_that_nothing_reads_is_only_rewritten() -> None:
    text = """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision

HALF = MixedPrecision(param_dtype=torch.float16, buffer_dtype=torch.float16)
model = FSDP(net)
"""
    kept = text + "\n\nclass Config:\n    policy = HALF\n"
    for unread in (text, kept):
        (found,) = (each for each in rewrite(unread).findings if each.rule == "FM103")
        assert (found.level, found.message[-19:]) == (Level.REWRITTEN, "which nothing reads")
    (found,) = (each for each in rewrite(f"{kept}\n\nuse(Config.policy)\n").findings if each.rule == "FM103")
    assert found.level is Level.REVIEW
    (found,) = (each for each in rewrite(text + "use(HALF, model)\n").findings if each.rule == "FM103")
    assert found.level is Level.REVIEW


def test_a_chosen_precision_that_nothing_reads_is_only_rewritten() -> None:
    """models-magpie: `mixed_precision=None,  # mp_policy`."""
    text = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


def build(net, bf16):
    policy = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16) if bf16 else None
    return FSDP(net, mixed_precision=None)
"""
    (found,) = (each for each in rewrite(text).findings if each.rule == "FM103")
    assert (found.level, found.message[-19:]) == (Level.REWRITTEN, "which nothing reads")


@pytest.mark.parametrize(
    "use",
    [
        "def main(model, low):\n    return apply(model, wrap)\n",
        "def main(model, low):\n    for layer in model.layers:\n        wrap(layer, low)\n    wrap(model, low)\n",
    ],
)
def test_function_that_wraps_each_unit_does_not_cast_the_inputs_of_inner_ones(use: str) -> None:
    head = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision\n\n\n"
    wrap = "def wrap(module, precision=None):\n    return FSDP(module, mixed_precision=precision)\n\n\n"
    assert "shard_model" in rewrite(head + wrap + use).support
    assert "shard_model" not in rewrite(head + wrap + "def main(model, low):\n    return wrap(model, low)\n").support


def test_one_buffer_dtype_under_a_condition() -> None:
    text = """
        def wrap(model, args):
            mp = None
            if args.kind == "autocast":
                mp = MixedPrecision(param_dtype=torch.float32, buffer_dtype=torch.float32)
            elif args.kind == "bf16":
                mp = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.float32)
            return FSDP(model, mixed_precision=mp)
        """
    header = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision\n\n\n"
    result = rewrite(header + code(text))
    after = """
        def wrap(model, args):
            mp = None
            if args.kind == "autocast":
                mp = MixedPrecisionPolicy(param_dtype=torch.float32)
            elif args.kind == "bf16":
                mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
            mp_policy = mp or MixedPrecisionPolicy()
            if mp is not None:
                for buffer in model.buffers():
                    if buffer.is_floating_point():
                        buffer.data = buffer.data.to(torch.float32)
            return fully_shard(model, mp_policy=mp_policy)
        """
    assert result.text.endswith(code(after))
    assert not result.support


def test_buffers_that_each_choice_has_in_the_dtype_of_the_reduction() -> None:
    """`fpSixteen` and `bfSixteen_mixed` of llama-recipes, or None."""
    text = """
        def wrap(model, args):
            mp = None
            if args.half:
                mp = MixedPrecision(torch.float16, torch.float16, torch.float16)
            elif args.mixed:
                mp = MixedPrecision(torch.float32, torch.bfloat16, torch.bfloat16)
            return FSDP(model, mixed_precision=mp if not args.pure_bf16 else None)
        """
    header = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision\n\n\n"
    after = """
        def wrap(model, args):
            mp = MixedPrecisionPolicy()
            if args.half:
                mp = MixedPrecisionPolicy(torch.float16, torch.float16)
            elif args.mixed:
                mp = MixedPrecisionPolicy(torch.float32, torch.bfloat16)
            mp_policy = mp if not args.pure_bf16 else MixedPrecisionPolicy()
            if mp_policy.reduce_dtype is not None:
                for buffer in model.buffers():
                    if buffer.is_floating_point():
                        buffer.data = buffer.data.to(mp_policy.reduce_dtype)
            return fully_shard(model, mp_policy=mp_policy)
        """
    assert rewrite(header + code(text)).text.endswith(code(after))


def test_each_choice_says_whether_units_cast_their_inputs() -> None:
    """`fpSixteen` and `bfSixteen` of llama-recipes; None stands in another file."""
    policies = """
        import torch
        from torch.distributed.fsdp import MixedPrecision

        # requires grad scaler in main loop
        fpSixteen = MixedPrecision(
            param_dtype=torch.float16,
            reduce_dtype=torch.float16,  # of gradients
            # Buffer precision.
            buffer_dtype=torch.float16,
        )
        short = MixedPrecision(torch.float32, torch.float32, torch.float32)
        bfSixteen = MixedPrecision(
            param_dtype=torch.bfloat16,
            # Buffer precision.
            buffer_dtype=torch.bfloat16,
            cast_forward_inputs=True,
        )


        def get_policy(args):
            policy = None
            if args.half:
                policy = fpSixteen if args.ready else short
            elif args.bf16:
                policy = bfSixteen
            return policy
        """
    train = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        from net import Block, Net
        from policies import get_policy


        def wrap(args):
            policy = get_policy(args)
            blocks = ModuleWrapPolicy({Block})
            return FSDP(Net(), auto_wrap_policy=blocks, mixed_precision=policy if not args.pure_bf16 else None)
        """
    net = """
        from torch import nn


        class Block(nn.Linear):
            pass


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", self.ones())
                self.blocks = nn.ModuleList(Block(8, 8) for _ in range(3))

            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return x * self.scale
        """
    result = rewrite_files({"train.py": code(train), "policies.py": code(policies), "net.py": code(net)})
    made = """
        # requires grad scaler in main loop
        fpSixteen = MixedPrecisionPolicy(
            param_dtype=torch.float16,
            reduce_dtype=torch.float16,  # of gradients
            cast_forward_inputs=False,
        )
        short = MixedPrecisionPolicy(torch.float32, torch.float32, cast_forward_inputs=False)
        bfSixteen = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16,
            cast_forward_inputs=True,
        )


        def get_policy(args):
            policy = MixedPrecisionPolicy()
        """
    assert code(made) in result.after["policies.py"]
    given = """
        # The root casts its inputs in any case.
        root_mp_policy = replace(mp_policy, cast_forward_inputs=True)
        for block in model.blocks:
            fully_shard(block, mp_policy=mp_policy)
        return fully_shard(model, mp_policy=root_mp_policy)
        """
    assert textwrap.indent(code(given), "    ") in result.after["train.py"]


def test_one_definition_cannot_cast_for_one_call_and_not_for_another() -> None:
    text = """
        half = MixedPrecision(param_dtype=torch.float16)
        bf16 = MixedPrecision(param_dtype=torch.bfloat16, cast_forward_inputs=True)


        def wrap(args):
            blocks = ModuleWrapPolicy({Block})
            return FSDP(Net(), auto_wrap_policy=blocks, mixed_precision=half if args.half else bf16)


        def other():
            return FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=half)
        """
    result = rewrite(HEAD + code(text))
    assert "half = MixedPrecision(param_dtype=torch.float16)\n" in result.text


def test_a_wrap_of_another_script_is_no_part_of_this_one_s_model() -> None:
    script = code("""
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from shared import bf16

        model = FSDP(make_model(), mixed_precision=bf16)
    """)
    shared = code("""
        import torch
        from torch.distributed.fsdp import MixedPrecision

        bf16 = MixedPrecision(param_dtype=torch.bfloat16)
    """)
    result = rewrite_files({"train.py": script, "tune.py": script, "shared.py": shared})
    assert "fully_shard(make_model(), mp_policy=bf16)" in result.after["train.py"]
    assert not any("another one" in finding.message for finding in result.findings)
    both = rewrite_files({"train.py": script, "tune.py": f"import train\n{script}", "shared.py": shared})
    assert both.after["train.py"] == result.after["train.py"]
    assert any("a part of another one" in finding.message for finding in both.findings)


def test_a_call_in_another_file_may_wrap_what_is_around_it() -> None:
    """What a function is given is asked in the file of each call (KeyError: rllm)."""
    files = {
        "shard.py": code("""
            import torch
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


            def shard(net):
                return FSDP(net, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
        """),
        "train.py": code("""
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            from shard import shard


            def main(net, reference):
                return shard(net), FSDP(reference)
        """),
    }
    result = rewrite_files(files)
    assert "return fully_shard(net, mp_policy=mp_policy)" in result.after["shard.py"]
    assert any("a part of another one" in finding.message for finding in result.findings)


@pytest.mark.parametrize(("other", "support"), [("unet", {"cast_at_root"}), ("net", {"shard_model"})])
def test_what_a_function_is_given_beside_a_model_is_no_model_around_it(other: str, support: set[str]) -> None:
    text = code(f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


        def shard(net, unet):
            net.head = FSDP(net.head, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
            if unet:
                {other} = FSDP({other}, mixed_precision=MixedPrecision(param_dtype=torch.float16))
            return net, unet
    """)
    assert rewrite(text).support == support


@pytest.mark.parametrize(
    "call",
    ["net.head = FSDP(net.head, mixed_precision=bf16)", "for part in net.children(): FSDP(part, mixed_precision=bf16)"],
)
@pytest.mark.parametrize("whole", ["net = FSDP(net)", "if torch.cuda.is_available():\n    net = FSDP(net)"])
def test_what_a_model_holds_is_no_root(call: str, whole: str) -> None:
    text = code("""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision

        bf16 = MixedPrecision(param_dtype=torch.bfloat16)
        net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    """)
    result = rewrite(f"{text}{call}\n{whole}\n")
    is_seen = whole == "net = FSDP(net)"
    assert ("replace(bf16, cast_forward_inputs=False)" in result.text) == is_seen
    assert ("shard_model" in result.support) != is_seen


def test_what_the_callers_hand_in_is_a_part() -> None:
    text = code("""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


        def shard(module):
            return FSDP(module, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))


        def build(net):
            net.head = shard(net.head)
            return shard(net)
    """)
    assert rewrite(text).support == {"cast_at_root"}
    assert not rewrite(text.replace("    net.head = shard(net.head)\n", "")).support


def test_what_a_script_is_started_with_wraps_once() -> None:
    text = code("""
        import fire
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


        def main(size):
            model = FSDP(make_model(size), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))


        if __name__ == "__main__":
            fire.Fire(main)
    """)
    assert rewrite(text).support == set()
    text = text.replace('if __name__ == "__main__":', "for _ in range(2):")
    assert rewrite(text).support == set(), "nothing has what it wrapped before"
    assert rewrite(text.replace("\n\n\nfor", "\n    return model\n\n\nfor")).support == {"cast_at_root"}
    assert rewrite(text.replace("make_model(size)", "size")).support == {"cast_at_root"}


OWN_MODEL = """
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.last = nn.LayerNorm(8)

    def forward(self, x):
        return self.last(torch.relu(self.layer(x)))


mp = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
model = FSDP(Net(), mixed_precision=mp)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nn.LayerNorm(8)", "nn.BatchNorm1d(8)"),
        ("nn.LayerNorm(8)", "parts.norm(8)"),
        ("nn.LayerNorm(8)", "torch.hub.load('norm')"),
        ("nn.LayerNorm(8)", "nn.utils.spectral_norm(nn.Linear(8, 8))"),
        ("self.last = ", "self.register_buffer('scale', torch.ones(8))\n        self.last = "),
        ("class Net(nn.Module)", "class Net(parts.Base)"),
        ("model = FSDP(Net(),", "net = Net()\nnet.rope = parts.Rope()\nmodel = FSDP(net,"),
    ],
)
def test_buffers_are_cast_unless_the_model_is_seen_to_have_none(old: str, new: str) -> None:
    seen = rewrite(OWN_MODEL)
    assert "buffer" not in seen.text
    assert [level for _, level, _ in seen.summary] == ["rewritten"] * len(seen.summary)
    unseen = rewrite("import parts\n" + OWN_MODEL.replace(old, new))
    assert ".buffers()" in unseen.text


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("mp if bf16 else None", "mp if bf16 else MixedPrecisionPolicy()"),
        ("None if fp32 else mp", "MixedPrecisionPolicy() if fp32 else mp"),
    ],
)
def test_a_policy_stands_for_the_none_of_a_condition(given: str, becomes: str) -> None:
    before = HEAD + code(
        f"""
        def wrap(model, bf16, fp32):
            mp = MixedPrecision(param_dtype=torch.bfloat16)
            return FSDP(model, mixed_precision={given})
        """
    )
    assert f"    mp_policy = {becomes}\n" in rewrite(before).text


def test_a_condition_over_what_may_be_none_chooses_between_policies() -> None:
    before = HEAD + code(
        """
        def wrap(model, bf16, mixed):
            mp = MixedPrecision(param_dtype=torch.bfloat16) if mixed else None
            return FSDP(model, mixed_precision=mp if bf16 else None)
        """
    )
    text = rewrite(before).text
    assert "    mp_policy = mp if bf16 else MixedPrecisionPolicy()\n" in text
    assert " if mixed else MixedPrecisionPolicy()\n" in text


def test_classes_that_a_precision_names_stay_in_float32() -> None:
    text = """
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy


        def wrap(model, classes):
            return FSDP(
                model,
                auto_wrap_policy=ModuleWrapPolicy({Block}),
                mixed_precision=MixedPrecision(torch.bfloat16, _module_classes_to_ignore=classes),
            )
        """
    after = """
        float32_classes = tuple(classes)
        mp_policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        # Inputs are cast at the root only.
        block_mp_policy = replace(mp_policy, cast_forward_inputs=False)
        # These classes stay in float32, in units of their own.
        float32_mp_policy = MixedPrecisionPolicy(
            param_dtype=torch.float32, output_dtype=mp_policy.param_dtype
        )
        for module in reversed(list(model.modules())):
            if isinstance(module, float32_classes):
                fully_shard(module, mp_policy=float32_mp_policy)
            elif module is not model and isinstance(module, Block):
                fully_shard(module, mp_policy=block_mp_policy)
        return fully_shard(model, mp_policy=mp_policy)
        """
    result = rewrite(HEAD + code(text))
    assert textwrap.indent(code(after), "    ").strip() in result.text


READ = {
    "handed in": ("precision", "precision", " if precision is not None else ()"),
    "of a setting": ("cfg.mp", "cfg.mp", " if cfg.mp is not None else ()"),
    "in a variable": ("ours", "ours", ""),
}


@pytest.mark.parametrize(("given", "name", "rest"), READ.values(), ids=READ)
def test_classes_that_a_precision_of_run_time_names_are_read(given: str, name: str, rest: str) -> None:
    text = f"""
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy


        def wrap(model, cfg, precision=None):
            ours = MixedPrecision(torch.bfloat16, _module_classes_to_ignore=cfg.classes)
            return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({{Block}}), mixed_precision={given})
        """
    result = rewrite(HEAD + code(text))
    assert f"    float32_classes = tuple({name}._module_classes_to_ignore){rest}\n" in flat(result.text)
    assert "        if isinstance(module, float32_classes):\n" in result.text
    assert "MixedPrecision(torch.bfloat16, _module_classes_to_ignore=cfg.classes)" in result.text
    assert not result.support


def test_precisions_none_of_which_names_classes_are_written_anew() -> None:
    text = """
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy


        def wrap(model, policy):
            ours = MixedPrecision(torch.bfloat16)
            return FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}), mixed_precision=ours)


        def wrap_other(model, policy, classes):
            return FSDP(model, mixed_precision=MixedPrecision(torch.bfloat16, _module_classes_to_ignore=classes))
        """
    assert "    ours = MixedPrecisionPolicy(torch.bfloat16)\n" in rewrite(HEAD + code(text)).text


def test_batch_norm_of_an_ignored_module_is_no_unit() -> None:
    arguments = "ModuleWrapPolicy({Block}), mixed_precision=MixedPrecision(torch.float16), ignored_modules=[model.stem]"
    text = wrapped("nn.BatchNorm2d(3)", f"auto_wrap_policy={arguments}")
    assert "        if module not in ignored and isinstance(module, nn.BatchNorm2d):\n" in text


def test_classes_that_stay_in_float32_are_looked_for_inside_of_the_units() -> None:
    text = """
        from functools import partial

        from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy


        def wrap(model, classes):
            return FSDP(
                model,
                auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks),
                mixed_precision=MixedPrecision(torch.bfloat16, _module_classes_to_ignore=classes),
            )
        """
    loop = """
        for module in reversed(list(model.modules())):
            if isinstance(module, float32_classes):
                fully_shard(module, mp_policy=float32_mp_policy)
            elif module is not model and module in model.blocks:
                fully_shard(module, mp_policy=block_mp_policy)
        return fully_shard(model, mp_policy=mp_policy)
        """
    assert textwrap.indent(code(loop), "    ").strip() in rewrite(HEAD + code(text)).text


def test_precision_for_a_library_that_wraps_by_itself_stays() -> None:
    text = """\
from accelerate import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def own(net):
    return FSDP(net)


def plugin(dtype, bf16):
    policy = MixedPrecision(param_dtype=dtype, buffer_dtype=dtype) if bf16 else None
    return FullyShardedDataParallelPlugin(mixed_precision_policy=policy)
"""
    assert (
        "    policy = MixedPrecision(param_dtype=dtype, buffer_dtype=dtype) if bf16 else None\n" in rewrite(text).text
    )


WITHOUT_FORWARD = code(
    """
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def {}(self, x):
            return self.block(x)


    def build(args):
        mixed = {}
        return FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({{Block}}), mixed_precision=mixed)
    """
)


@pytest.mark.parametrize("precision", ["MixedPrecision(param_dtype=torch.bfloat16)", "args.mixed"])
def test_units_of_a_model_without_a_forward_cast_their_inputs(precision: str) -> None:
    """Each is a root of its own under FSDP1; with the cast at the root, which never runs, the first Linear raised."""
    text = HEAD + WITHOUT_FORWARD
    assert "block_mp_policy" not in rewrite(text.format("encode", precision)).text
    assert "block_mp_policy" in rewrite(text.format("forward", precision)).text
    given = (
        text.format("encode", precision)
        .replace("Net(),", "net,")
        .replace("mixed =", "net = Net()\n    net.forward = args.f\n    mixed =")
    )
    assert "block_mp_policy" in rewrite(given).text


MADE_ELSEWHERE = HEAD + code(
    """
    def precision_of(low):
        dtype = torch.bfloat16 if low else torch.float16
        return MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype)


    def wrap(model, args):
        kwargs = {"use_orig_params": True}
        if args.low:
            kwargs["mixed_precision"] = precision_of(True)
        if args.prefetch:
            known = {"pre": True, "post": False}
            if args.prefetch in known:
                kwargs["forward_prefetch"] = known[args.prefetch]
        return FSDP(model, **kwargs)
    """
)


def test_what_a_function_makes_and_a_condition_puts_into_a_dict() -> None:
    """Whatever FSDP2 needs none of may be put there under several conditions, which go with what only they read."""
    result = rewrite(MADE_ELSEWHERE)
    assert result.text.endswith(
        code(
            """
            def precision_of(low):
                dtype = torch.bfloat16 if low else torch.float16
                return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)


            def wrap(model, args):
                mp_policy = precision_of(True) if args.low else MixedPrecisionPolicy()
                if mp_policy.param_dtype is not None:
                    for buffer in model.buffers():
                        if buffer.is_floating_point():
                            buffer.data = buffer.data.to(mp_policy.param_dtype)
                return fully_shard(model, mp_policy=mp_policy)
            """
        )
    )


IN_A_DICT = {
    "which may be None": ("return Mixed", "if not low:\n        return None\n    return Mixed"),
    "with another dtype of buffers": ("buffer_dtype=dtype", "buffer_dtype=torch.float32"),
    "under two conditions": ("if args.low:\n        kw", "if args.low:\n        if args.x:\n            kw"),
}


@pytest.mark.parametrize(("old", "new"), IN_A_DICT.values(), ids=IN_A_DICT)
def test_what_comes_out_of_a_dict_at_run_time(old: str, new: str) -> None:
    text = rewrite(MADE_ELSEWHERE.replace(old, new)).text
    assert 'kwargs.get("mixed_precision")' in text
    assert "precision_of(True) if args.low" not in text


def test_what_another_call_needs_as_it_is_comes_out_of_a_dict() -> None:
    other = "\n\ndef other(model, **kwargs):\n    return FSDP(model, mixed_precision=precision_of(1), **kwargs)\n"
    text = rewrite(MADE_ELSEWHERE + other).text
    assert "    return MixedPrecision(" in text
    assert 'mixed_precision = kwargs.get("mixed_precision")' in text


def test_what_a_call_that_stays_is_given_stays() -> None:
    """Its `buffer_dtype` was lost, and the person who mends the call runs the tool again."""
    text = code("""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision


        def main(net, other, args):
            if args.bf16:
                policy = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.float32)
            else:
                policy = None
            model = FSDP(net, mixed_precision=policy, post_param_init_fn=args.init)
            return model, FSDP(other)
        """)
    result = rewrite(text)
    assert "policy = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.float32)" in result.text
    assert "fully_shard(other)" in result.text
