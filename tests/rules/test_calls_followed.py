"""What a function is given, however the program comes to call it: from other files, by other names."""

from __future__ import annotations

import pytest

from ..helpers import rewrite_files

HEAD = "import torch\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
MODEL = "\nmodel = FSDP(torch.nn.Linear(4, 4))\n"
STEP = "def step(model):\n    return model.clip_grad_norm_(1.0)\n"
TRAINER = (
    "class Trainer:\n    def __init__(self, net):\n        self.model = net\n\n"
    "    def step(self):\n        return self.model.clip_grad_norm_(1.0)\n"
)
CALLED = "class Step:\n    def __call__(self, *, model, norm=1.0):\n        return model.clip_grad_norm_(norm)\n"
METHOD = (
    "class Trainer:\n    def __init__(self, lr):\n        self.lr = lr\n\n"
    "    def step(self, model):\n        return model.clip_grad_norm_(1.0)\n"
)
LOOP = (
    "class Loop:\n    def __init__(self, function):\n        self.function = function\n\n"
    "    def run(self, model):\n        self.function(model)\n"
)
CHOSEN = "if torch.cuda.is_available():\n    from other import step\nelse:\n    from lib import step"
HEIR = "from lib import Trainer as Base\n\n\nclass Mine(Base):\n    pass\n"
WAYS = {
    "itself": (STEP, "", "from lib import step", "step(model)"),
    "alias": (STEP, "", "from lib import step as run", "run(model)"),
    "alias in a function": (STEP, "", "", "\ndef main():\n    from lib import step as run\n    run(model)\n\n\nmain()"),
    "alias of an alias": (STEP, "from lib import step as go\n", "from other import go as run", "run(model)"),
    "alias in a table": (STEP, "", "from lib import step as run", 'TABLE = {"a": run}\nTABLE["a"](model)'),
    "alias handed on": (
        STEP,
        "def loop(function, model):\n    function(model)\n",
        "from lib import step as run\nfrom other import loop",
        "loop(run, model)",
    ),
    "alias of a class": (TRAINER, "", "from lib import Trainer as T", "T(model).step()"),
    "heir of an alias": (TRAINER, HEIR, "from other import Mine as M", "M(model).step()"),
    "table in another file": (
        STEP,
        'import lib\n\nTABLE = {"a": lib.step}\n',
        "from other import TABLE",
        'TABLE["a"](model)',
    ),
    "classes in a table": (
        TRAINER,
        'import lib\n\nTABLE = {"a": lib.Trainer}\n',
        "from other import TABLE",
        'TABLE["a"](model).step()',
    ),
    "class that a function returns": (
        TRAINER,
        "import lib\n\n\ndef named(name):\n    if name:\n        return lib.Trainer\n    raise ValueError\n",
        "from other import named",
        "kind = named('a')\nkind(model).step()",
    ),
    "variable of another file": (TRAINER, "import lib\n\nT = lib.Trainer\n", "from other import T", "T(model).step()"),
    "partial of another file": (
        TRAINER,
        "from functools import partial\n\nimport lib\n\nmake = partial(lib.Trainer)\n",
        "from other import make",
        "make(model).step()",
    ),
    "bound method": (METHOD, "", "from lib import Trainer", "step = Trainer(0.1).step\nstep(model)"),
    "bound method handed on": (
        METHOD,
        LOOP,
        "from lib import Trainer\nfrom other import Loop",
        "Loop(Trainer(0.1).step).run(model)",
    ),
    "one of two imports": (STEP, STEP, CHOSEN, "step(model)"),
    "module under a condition": (
        STEP,
        STEP,
        "if torch.cuda.is_available():\n    import other as steps\nelse:\n    import lib as steps",
        "steps.step(model)",
    ),
    "called object": (CALLED, "", "from lib import Step", "Step()(model=model)"),
    "called object by name": (CALLED, "", "from lib import Step as S", "run = S()\nrun(model=model)"),
    "called attribute": (
        CALLED,
        "class Loop:\n    def __init__(self, step):\n        self.step = step\n\n"
        "    def run(self, model):\n        self.step(model=model)\n",
        "from lib import Step\nfrom other import Loop",
        "Loop(Step()).run(model)",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_is_followed(way: str) -> None:
    lib, other, imports, call = WAYS[way]
    result = rewrite_files({"lib.py": lib, "other.py": other, "train.py": f"{HEAD}{imports}\n{MODEL}{call}\n"})
    assert "torch.nn.utils.clip_grad_norm_(" in result.after["lib.py"]
    assert "hasattr" not in result.after["lib.py"]
