"""FM428: the method `state_dict` as a value; FM304: what only run time hands over."""

from __future__ import annotations

import pytest

from ..helpers import code, rewrite

HEAD = """
    import operator
    import queue

    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    def main(net, path, ema, jobs: queue.Queue):
"""


def _findings(body: str) -> list[tuple[str, str]]:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return [(each.rule, each.level.value) for each in rewrite(code(HEAD + lines)).findings if each.rule != "FM101"]


@pytest.mark.parametrize(
    "body",
    [
        "get = net.state_dict\nFSDP(net)\nreturn get",  # of the plain module, before it is wrapped
        "model = FSDP(net)\nget = ema.state_dict\nreturn model, get",
        "model = FSDP(net)\nmodel.state_dict = lambda: {}\nreturn model",
        "model = FSDP(net)\nreturn model, getattr(ema, 'state_dict')",
        "model = FSDP(net)\nreturn model if hasattr(model, 'state_dict') else None",
        "model = FSDP(net)\nreturn model, callable(getattr(model, 'state_dict', None))",
        "model = FSDP(net)\nreturn model, getattr(model, 'state_dict', None) is not None",
        "model = FSDP(net)\nif getattr(model, 'state_dict', None):\n    print(path)\nreturn model",
        "model = FSDP(net)\noptimizer = jobs.get()\nreturn model, optimizer.state_dict()",
        "model = FSDP(net)\nbest = ema.get('best')\nreturn model, best.state_dict()",
    ],
)
def test_what_is_not_told(body: str) -> None:
    assert _findings(body) == []


@pytest.mark.parametrize(
    "take",
    [
        "model.state_dict",
        "getattr(model, 'state_dict')",
        "getattr(model, 'state_dict', None)",
        "operator.methodcaller('state_dict')(model)",
    ],
)
def test_taken_to_be_called_later(take: str) -> None:
    body = f"model = FSDP(net)\nget = {take}\ntorch.save(get(), path)"
    assert _findings(body) == [("FM428", "manual")]
    after = rewrite(code(HEAD + "".join(f"        {line}\n" for line in body.splitlines()))).text
    assert "raise NotImplementedError" in after


@pytest.mark.parametrize("got", ["jobs.get()", "jobs.get_nowait()", "ema.result()", "operator.attrgetter('net')(ema)"])
def test_what_only_run_time_hands_over(got: str) -> None:
    body = f"model = FSDP(net)\nm = {got}\ntorch.save(m.state_dict(), path)\nreturn model"
    assert _findings(body) == [("FM304", "manual")]


@pytest.mark.parametrize(("made", "is_told"), [("FSDP(Own())", True), ("FSDP(net)", False)])
def test_a_state_dict_of_the_models_class(made: str, is_told: bool) -> None:
    """Measured: FSDP1's file had what the method leaves out."""
    text = code(
        f"""
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


        class Own(torch.nn.Module):
            def state_dict(self, *args):
                return {{k: v for k, v in super().state_dict(*args).items() if not k.startswith("frozen.")}}


        def main(net):
            return {made}
        """
    )
    told = [(each.rule, each.level.value) for each in rewrite(text).findings if each.rule == "FM428"]
    assert told == [("FM428", "review")] * is_told


RENAMED = """
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            {register}

        def {method}(self, state, prefix, *args):
            {body}
            return args


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = Head()


    def load(state):
        model = FSDP(Net())
        model.load_state_dict(state)
"""
STORES = 'state[prefix + "linear.weight"] = state.pop(prefix + "fc.weight")'


@pytest.mark.parametrize(
    ("register", "method", "body", "is_told"),
    [
        ("pass", "_load_from_state_dict", STORES, True),
        ("self._register_load_state_dict_pre_hook(self.rename)", "rename", STORES, True),
        ("self.register_load_state_dict_pre_hook(self.rename)", "rename", STORES, True),
        ("pass", "rename", STORES, False),
        ("pass", "_load_from_state_dict", "print(prefix)", False),
    ],
)
def test_keys_that_are_renamed_while_they_are_loaded(register: str, method: str, body: str, is_told: bool) -> None:
    text = code(RENAMED.format(register=register, method=method, body=body))
    for each, told in ((text, is_told), (text.replace("FSDP(Net())", "FSDP(nn.Linear(4, 4)), Net()"), False)):
        found = [(one.rule, one.level.value) for one in rewrite(each).findings if one.rule == "FM428"]
        assert found == [("FM428", "review")] * told
