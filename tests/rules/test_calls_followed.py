"""What a function is given, however the program comes to call it: from other files, by other names."""

from __future__ import annotations

import pytest

from ..helpers import code, rewrite_files

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
STATIC = "class Tools:\n    @staticmethod\n    def step(model):\n        return model.clip_grad_norm_(1.0)\n"
OF_CLASS = "class Tools:\n    @classmethod\n    def step(cls, model):\n        return model.clip_grad_norm_(1.0)\n"
LOOP = (
    "class Loop:\n    def __init__(self, function):\n        self.function = function\n\n"
    "    def run(self, model):\n        self.function(model)\n"
)
TABLE = "TABLE = {}\n\n\n"
REGISTER = TABLE + (
    "def register(name):\n    def add(made):\n        TABLE[name] = made\n        return made\n\n    return add\n"
)
REGISTRY = (
    "class Registry:\n    def __init__(self):\n        self._table = {}\n\n"
    "    def register(self, name=None):\n        def add(made):\n"
    "            self._table[name or made.__name__] = made\n            return made\n\n        return add\n\n"
    "    def get(self, name):\n        return self._table[name]\n\n"
    "    def build(self, name, *args, **kwargs):\n        return self._table[name](*args, **kwargs)\n\n"
    "    def made(self, config):\n        given = config.copy()\n        made = self._table[given.pop('type')]\n"
    "        return made(**given)\n\n\n"
    "STEPS = Registry()\n"
)
CHOSEN = "if torch.cuda.is_available():\n    from other import step\nelse:\n    from lib import step"
HEIR = "from lib import Trainer as Base\n\n\nclass Mine(Base):\n    pass\n"
WAYS = {
    "itself": (STEP, "", "from lib import step", "step(model)"),
    "static method": (STATIC, "", "from lib import Tools", "Tools.step(model)"),
    "static method of an object": (STATIC, "", "from lib import Tools", "Tools().step(model)"),
    "static method by a name": (STATIC, "", "import sys\nfrom lib import Tools", "getattr(Tools, f'st{sys}')(model)"),
    "method of the class": (OF_CLASS, "", "from lib import Tools", "Tools.step(model)"),
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
    "added by a decorator": (
        f"from other import add\n\n\n@add\n{STEP}",
        f"{TABLE}def add(function):\n    TABLE[function.__name__] = function\n    return function\n",
        "import lib\nfrom other import TABLE",
        'TABLE["step"](model)',
    ),
    "registered": (
        f'from other import register\n\n\n@register("a")\n{STEP}',
        REGISTER,
        "import lib\nfrom other import TABLE",
        'TABLE["a"](model)',
    ),
    "registered class": (
        f'from other import register as named\n\n\n@named("a")\n{TRAINER}',
        REGISTER,
        "import lib\nfrom other import TABLE",
        'TABLE["a"](model).step()',
    ),
    "got from a registry": (
        f'from other import STEPS\n\n\n@STEPS.register("a")\n{STEP}',
        REGISTRY,
        "import lib\nfrom other import STEPS",
        'STEPS.get("a")(model)',
    ),
    "built by a registry": (
        f"from other import STEPS\n\n\n@STEPS.register()\n{TRAINER}",
        REGISTRY,
        "import lib\nfrom other import STEPS",
        'STEPS.build("Trainer", net=model).step()',
    ),
    "built from a dict": (
        f"from other import STEPS\n\n\n@STEPS.register()\n{TRAINER}",
        REGISTRY,
        "import lib\nfrom other import STEPS",
        'STEPS.made(dict(type="Trainer", net=model)).step()',
    ),
    "by a name of the module": (STEP, "", "import lib\nimport sys", "getattr(lib, sys.argv[1])(model)"),
    "class by a name": (TRAINER, "", "import lib\nimport sys", "getattr(lib, sys.argv[1])(model).step()"),
    "imported by a name": (
        STEP,
        "from importlib import import_module\n\n\ndef named(name):\n    return import_module(name)\n",
        "import lib\nfrom other import named",
        "steps = named(input())\nsteps.step(model)",
    ),
    "class of a module by a name": (
        TRAINER,
        "import importlib\n\n\ndef named(name):\n    module, kind = name.split(':')\n"
        "    return getattr(importlib.import_module(module), kind)\n",
        "import lib\nfrom other import named",
        "named(input())(net=model).step()",
    ),
    "by a name of this file": (STEP, "", "from lib import *\nimport sys", "globals()[sys.argv[1]](model)"),
    "in a dict by its name": (
        TRAINER,
        "",
        "import lib\nimport sys",
        "kinds = {each.__name__: each for each in [lib.Trainer]}\nkinds[sys.argv[1]](model).step()",
    ),
    "registers itself": (
        "class Base:\n    table = {}\n\n    def __init_subclass__(cls):\n        Base.table[cls.__name__] = cls\n\n\n"
        + TRAINER.replace("Trainer", "Trainer(Base)"),
        "",
        "from lib import Base\nimport sys",
        "Base.table[sys.argv[1]](model).step()",
    ),
    "added by an object": (
        "class Added:\n    table = {}\n\n    def __init__(self, name):\n        self.name = name\n\n"
        "    def __call__(self, made):\n        Added.table[self.name] = made\n        return made\n\n\n"
        + f"@Added('a')\n{STEP}",
        "",
        "from lib import Added",
        "Added.table['a'](model)",
    ),
    "hook": (
        "class Clip:\n    def after_step(self, loop):\n        loop.model.clip_grad_norm_(1.0)\n",
        "class Loop:\n    def __init__(self, model):\n        self.model = model\n        self.hooks = []\n\n"
        "    def run(self, name):\n        for hook in self.hooks:\n            getattr(hook, f'after_{name}')(self)\n",
        "from lib import Clip\nfrom other import Loop",
        "loop = Loop(model)\nloop.hooks.append(Clip())\nloop.run('step')",
    ),
    "attribute of a module": (
        "import other\n\n\ndef step():\n    return other.model.clip_grad_norm_(1.0)\n",
        "model = None\n",
        "import other\nimport lib",
        "other.model = model\nlib.step()",
    ),
    "by hydra": (
        TRAINER,
        "",
        "import hydra\nimport lib",
        "hydra.utils.instantiate(input(), net=model).step()",
    ),
    "by hydra's target": (
        STEP,
        "",
        "import lib\nfrom hydra.utils import get_method",
        "get_method(input())(model)",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_is_followed(way: str) -> None:
    lib, other, imports, call = WAYS[way]
    result = rewrite_files({"lib.py": lib, "other.py": other, "train.py": f"{HEAD}{imports}\n{MODEL}{call}\n"})
    assert "torch.nn.utils.clip_grad_norm_(" in result.after["lib.py"]
    assert "hasattr" not in result.after["lib.py"]


def test_configuration_may_hold_a_model() -> None:
    build = (
        "import importlib\n\n\ndef named(name):\n    module, kind = name.split(':')\n"
        "    return getattr(importlib.import_module(module), kind)\n\n\n"
        "def build(config, **kwargs):\n    return named(config['target'])(**config.get('params', {}), **kwargs)\n"
    )
    call = "import lib\nfrom other import build\n\nbuild({'target': input()}, net=model).step()\n"
    result = rewrite_files({"lib.py": TRAINER, "other.py": build, "train.py": f"{HEAD}{MODEL}{call}"})
    assert "torch.nn.utils.clip_grad_norm_(" in result.after["lib.py"]


def test_is_returned_by_what_has_a_name() -> None:
    wraps = HEAD.partition("\n")[2] + "\n\ndef fsdp(net):\n    return FSDP(net)\n\n\ndef none(net):\n    return net\n"
    train = "import sys\nimport torch\nimport lib\n\nmodel = getattr(lib, sys.argv[1])(torch.nn.Linear(4, 4))\n"
    saved = "torch.save(model.state_dict(), 'model.pt')\n"
    result = rewrite_files({"lib.py": wraps, "train.py": train + saved})
    assert "model.state_dict()," not in result.after["train.py"]


@pytest.mark.parametrize(
    "other",
    [
        "def step(model, rate):\n    return model.clip_grad_norm_(rate)\n",
        "def step(*, rate):\n    return rate.clip_grad_norm_(1.0)\n",
        STEP + "\n\nstep(torch.nn.Linear(4, 4))\n",
    ],
)
def test_name_does_not_lead_to_what_does_not_fit(other: str) -> None:
    """Or to what is seen to be called otherwise."""
    call = "import lib\nimport sys\n\ngetattr(lib, sys.argv[1])(model)\n"
    result = rewrite_files({"lib.py": f"import torch\n{other}", "train.py": f"{HEAD}{MODEL}{call}"})
    assert "torch.nn.utils" not in result.after.get("lib.py", "") or "hasattr" in result.after["lib.py"]


SAVES = "import torch\n\n\ndef save(model):\n    torch.save(model.state_dict(), 'model.pt')\n"


def test_unseen_model_is_told() -> None:
    """Nobody is seen to call the function: should the program hand it the model after all, each rank saves shards."""
    call = "import atexit\nimport lib\n\natexit.register(lib.save, model)\n"
    result = rewrite_files({"lib.py": SAVES, "train.py": f"{HEAD}{MODEL}{call}"})
    assert result.after["lib.py"] == SAVES
    told = [finding for finding in result.findings if finding.path.name == "lib.py"]
    assert [(finding.rule, finding.level.name) for finding in told] == [("FM304", "REVIEW")]


def test_plain_model_is_not_told() -> None:
    call = "import lib\n\nlib.save(torch.nn.Linear(4, 4))\n"
    result = rewrite_files({"lib.py": SAVES, "train.py": f"{HEAD}{MODEL}{call}"})
    assert not [finding for finding in result.findings if finding.path.name == "lib.py"]


NAMESPACE = """\
    import torch
    {imports}


    def main(net):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        model = lib.utils.distributed.wrap(net)
        torch.save(model.state_dict(), "model.pt")
        return optimizer
    """


@pytest.mark.parametrize(
    ("imports", "package"),
    [
        ("import lib", {"lib/__init__.py": "from . import utils\n"}),
        ("import lib.utils.distributed", {"lib/__init__.py": ""}),
        ("import lib.utils.distributed", {}),
    ],
    ids=["imported by its package", "imported whole", "all folders without a file"],
)
def test_a_folder_without_init_is_followed(imports: str, package: dict[str, str]) -> None:
    head = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
    wrapping = head + "def wrap(net):\n    return FSDP(net, use_orig_params=True)\n"
    script = code(NAMESPACE).replace("{imports}", imports)
    result = rewrite_files({"train.py": script, "lib/utils/distributed.py": wrapping, **package})
    assert {"FM304", "FM405"} <= {finding.rule for finding in result.findings}
    lines = [line.strip() for line in result.after["train.py"].splitlines()]
    assert lines.index("model = lib.utils.distributed.wrap(net)") < lines.index(
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)"
    )


def test_a_library_has_the_name_of_a_function_that_is_handed_on() -> None:
    lib = "def deepspeed(model):\n    model.clip_grad_norm_(1.0)\n\n\nkinds = {'a': deepspeed}\n"
    imports = "import sys\nimport deepspeed\nfrom lib import kinds\n"
    call = "deepspeed.init()\nkinds[sys.argv[1]](model)\n"
    result = rewrite_files({"lib.py": lib, "train.py": f"{HEAD}{imports}\n{MODEL}{call}"})
    assert "torch.nn.utils.clip_grad_norm_(" in result.after["lib.py"]
