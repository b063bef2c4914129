"""What FSDP2 refuses: most of it FSDP1 refused too, and the rest is reported. None of it may train on in silence.

To add one, add an entry: a name, the model and its policy, what the two say, and the rule that reports it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .around_rows import training

TRAINS = ""
"""What FSDP1 says where it refuses nothing."""


@dataclass(frozen=True)
class Refused:
    """A program, with words of the errors that it ends with before and after its rewrite."""

    program: str
    fsdp1: str
    fsdp2: str
    rule: str = ""
    """The finding that asks for a person; none where FSDP1 fails as well, or where the source shows nothing."""


ROWS: dict[str, Refused] = {}


def row(
    name: str, made: str, policy: str, fsdp1: str, fsdp2: str, rule: str = "", *, above: str = "", flat: bool = False
) -> None:
    """A model that is wrapped with a policy, and trained."""
    model = f"model = FSDP({made}, auto_wrap_policy={policy}, use_orig_params={not flat})"
    ROWS[name] = Refused(training(model, above=above), fsdp1, fsdp2, rule)


# Units whose forward never runs, so that nothing gathers their parameters

LISTED = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(8, 8)
            self.scales = nn.ParameterList([nn.Parameter(torch.ones(8)) for _ in range(2)])

        def forward(self, x):
            return self.inp(x) * self.scales[0] * self.scales[1]
"""
MIXED = "mixed torch.Tensor and DTensor"
LISTS = "ModuleWrapPolicy({nn.ParameterList})"
row("a list of parameters", "Net()", LISTS, "must match the size", MIXED, above=LISTED)
row("a list of parameters, and all", "Net()", "always_wrap_policy", "must match the size", MIXED, above=LISTED)
row("layers that others read", "Attention()", "always_wrap_policy", "mat2 must be a matrix", MIXED)

# Outputs that hide the tensor from the hooks

HIDING = """
    class Made:
        def __init__(self, out):
            self.out = out


    class Hiding(Block):
        def forward(self, x):
            out = super().forward(x)
            return {made}


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp = nn.Linear(8, 12)
            self.block = Hiding()
            self.out = nn.Linear(12, 1)

        def forward(self, x):
            hidden = self.block(self.inp(x))
            return self.out({taken})
"""
OWN = HIDING.format(made="Made(out)", taken="hidden.out")
VIEW = HIDING.format(made="out.view(-1, 12)", taken="hidden.add_(1)")
FREED = "its data is not allocated yet"
UNITS = "ModuleWrapPolicy({Hiding})"
row("a unit that returns an object of its own", "Net()", UNITS, FREED, FREED, above=OWN)
row("a unit's view, changed in place", "Net()", UNITS, "expected to be in states", FREED, above=VIEW)

# Modules and weights that belong to two units

row(
    "a block under two parents, with units inside of units",
    "Shared()",
    "ModuleWrapPolicy({Block, nn.Sequential})",
    "mat2 must be a matrix",
    "value was None when it should not be",
)
TIED = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(8, 12, bias=False)
            self.head = nn.Linear(8, 12, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.embed(x) + self.head(2 * x)
"""
LINEAR = "ModuleWrapPolicy({nn.Linear})"
SHARED = "shared with a parameter already managed by another FSDP group"
row("tied weights in two units", "Net()", LINEAR, "size mismatch", SHARED, "FM409", above=TIED)
# FSDP1 unties them without a word.
row("tied weights in two units, flat", "Net()", LINEAR, TRAINS, SHARED, "FM409", above=TIED, flat=True)

# What FSDP1 took

PLAIN = "model = FSDP(Plain(), auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True)"
PLACEMENTS = "in-place operations that require placement changes"
for optimizer in ("Adafactor", "Rprop"):
    text = training(PLAIN, f"torch.optim.{optimizer}(model.parameters(), lr=0.01)")
    ROWS[optimizer] = Refused(text, TRAINS, PLACEMENTS, "FM407")
row(
    "a base with methods before the module",
    "Net()",
    "ModuleWrapPolicy({Block})",
    TRAINS,
    "object layout differs",
    "FM415",
    above="""
    import abc


    class Sized(abc.ABC):
        def size(self):
            return 1


    class Net(Sized, Plain):
        pass
    """,
)
row(
    "weights that are not contiguous",
    "Net()",
    "ModuleWrapPolicy({Block})",
    TRAINS,
    "non-contiguous parameters",
    above="""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(12, 8).t())
            self.block = Block()

        def forward(self, x):
            return self.block(x @ self.weight)
    """,
)
LATE = "model = FSDP(ChannelsLast(), use_orig_params=True).to(memory_format=torch.channels_last)"
ROWS["channels_last behind the wrap"] = Refused(training(LATE), TRAINS, "view size is not compatible")
ROWS["a copy of the sharded model"] = Refused(
    training(f"{PLAIN}\nteacher = deepcopy(model)"), "cannot pickle", "does not support deepcopy"
)
