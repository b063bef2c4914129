"""Parameters that only rewritten code read go, with what the program's calls pass for them."""

from __future__ import annotations

import pytest

from ..helpers import code, rewrite, rewrite_files

HEAD = """\
from functools import partial

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


"""
DEFINITION = """\
def wrap(model, orig=True, lr=1.0, *, prefetch=False):
    model = FSDP(model, use_orig_params=orig, forward_prefetch=prefetch)
    return model, lr


"""
MAIN = "def main(net, cfg):\n    orig = cfg.orig\n    {}\n"
SCRIPT = "\n\nif __name__ == '__main__':\n    main(*ask())\n"

STAYS = {
    "no call": "return net",
    "spread": "return wrap(net, **cfg)",
    "by place, spread": "return wrap(net, *cfg)",
    "as a value": "return cfg.run(wrap)",
    "as a value too": "wrap(net)\n    return cfg.run(wrap)",
    "what a call gives": "return wrap(net, cfg.orig(), prefetch=cfg.ask())",
    "through a partial": "return partial(wrap, prefetch=cfg.ask())(net, True)",
}


@pytest.mark.parametrize("call", STAYS.values(), ids=STAYS)
def test_stays(call: str) -> None:
    assert (
        "def wrap(model, orig=True, lr=1.0, *, prefetch=False):" in rewrite(HEAD + DEFINITION + MAIN.format(call)).text
    )


UNTOUCHED = {
    "unread before": ("use_orig_params=orig", "use_orig_params=True"),
    "read elsewhere": ("return model, lr", "return model, lr, orig, prefetch"),
    "read by another": ("return model, lr", "return lambda: (model, lr, orig, prefetch)"),
    "with other names": ("prefetch=False)", "prefetch=False, **more)"),
    "decorated": ("def wrap", "@cfg.main\ndef wrap"),
    "what the function shows": ("return model, lr", "return model, lr, locals()"),
}


@pytest.mark.parametrize(("old", "new"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_untouched(old: str, new: str) -> None:
    text = rewrite(HEAD + DEFINITION.replace(old, new) + MAIN.format("return wrap(net, orig, 2.0)")).text
    assert "def wrap(model, orig=True, lr=1.0" in text
    assert "wrap(net, orig, 2.0)" in text


GOES = {
    "by place": ("return wrap(net, orig, 2.0)", "lr=1.0", "return wrap(net, 2.0)"),
    "by keyword": ("return wrap(net, prefetch=cfg.p, orig=orig, lr=2.0)", "*, lr=1.0", "return wrap(net, lr=2.0)"),
    "not at all": ("return wrap(net)", "*, lr=1.0", "return wrap(net)"),
    "to a partial": ("return partial(wrap, orig=orig)(net)", "*, lr=1.0", "return partial(wrap)(net)"),
}


@pytest.mark.parametrize(("call", "params", "after"), GOES.values(), ids=GOES)
def test_goes(call: str, params: str, after: str) -> None:
    text = rewrite(HEAD + DEFINITION + MAIN.format(call)).text
    assert f"def wrap(model, {params}):\n" in text
    assert (f"def main(net, cfg):\n    {after}\n" in text) is ("orig=orig" in call or "orig," in call)
    script = rewrite(HEAD + DEFINITION + MAIN.format(call) + SCRIPT).text
    assert "def wrap(model, lr=1.0):\n" in script


def test_where_each_call_passes_all_a_call_too_many_says_so() -> None:
    definition = DEFINITION.replace("orig=True, lr=1.0, *, prefetch=False", "orig, lr")
    text = rewrite(HEAD + definition.replace("prefetch)", "True)") + MAIN.format("return wrap(net, lr=2, orig=1)")).text
    assert "def wrap(model, lr):\n" in text


def test_one_by_the_other_in_two_files() -> None:
    result = rewrite_files(
        {
            "train.py": (
                "from wraps import wrap\n\n\ndef main(net, orig):\n    return wrap(net, orig, 2.0)\n\n\n"
                "main(net(), True)\n"
            ),
            "wraps.py": HEAD + DEFINITION,
        }
    )
    assert result.after["train.py"] == (
        "from wraps import wrap\n\n\ndef main(net):\n    return wrap(net, 2.0)\n\n\nmain(net())\n"
    )


def test_lines_of_their_own() -> None:
    before = """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        def wrap(
            orig,  # FSDP1's
            model,
            prefetch: bool = False,
        ):
            return FSDP(model, use_orig_params=orig, forward_prefetch=prefetch)


        def main(net, cfg):
            return wrap(
                cfg.orig,
                net,
                prefetch=True,
            )
        """
    assert rewrite(code(before)).text == code(
        """
        from torch.distributed.fsdp import fully_shard


        def wrap(
            model,
        ):
            return fully_shard(model)


        def main(net, cfg):
            return wrap(
                net,
            )
        """
    )


SAID = {
    "google": "Args:\n        model (Net): the model\n        orig (bool, optional): FSDP1's,\n            or not\n"
    "        lr: the rate\n\n    Returns:\n        orig: all of it",
    "numpy": "Parameters\n    ----------\n    model : Net\n        The model.\n    orig : bool\n        As FSDP1.\n"
    "    lr : float\n\n    Returns\n    -------\n    orig : tuple",
    "sphinx": ":param model: the model\n    :param bool orig: as FSDP1\n    :type orig: bool\n    :return: orig: all",
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_what_the_docstring_says_of_it_goes_too(said: str) -> None:
    text = HEAD + DEFINITION.replace("    model =", f'    """Wrap it.\n\n    {said}\n    """\n    model =', 1)
    doc = rewrite(text + MAIN.format("return wrap(net, orig, 2.0)")).text.split('"""')[1]
    assert "model" in doc
    assert "FSDP1" not in doc
    assert "or not" not in doc
    assert doc.count("orig") == 1
