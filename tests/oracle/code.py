"""Ways in which a program comes to the code that uses a model: by a name, by a registry, by what a class defines.

A net is all that some of them have: what the code is given cannot be seen, and a state dict there is told all the
same, as it would be saved in shards without a word. (What else FSDP2 does not have is an error when it comes to it.)
"""

from __future__ import annotations

from random import Random
from textwrap import indent

from .programs import Draft, program

WAYS: dict[str, tuple[str, str, str]] = {
    "globals": (
        "net",
        """\
def use_N(net):
    BODY
""",
        'globals()["use" + "_N"]($)',
    ),
    "globals, got": (
        "net",
        """\
def use_N(net):
    BODY
""",
        'globals().get("use_N")($)',
    ),
    "eval": (
        "net",
        """\
def use_N(net):
    BODY
""",
        'eval("use_N")($)',
    ),
    "module itself": (
        "net",
        """\
def use_N(net):
    BODY
""",
        'getattr(sys.modules[__name__], "use" + "_N")($)',
    ),
    "registry of functions": (
        "net",
        """\
TABLE_N = {}


def register_N(function):
    TABLE_N[function.__name__] = function
    return function


@register_N
def use_N(net):
    BODY
""",
        'TABLE_N["use_N"]($)',
    ),
    "registry of functions, by a key": (
        "net",
        """\
TABLE_N = {}


def register_N(key):
    def keep(function):
        TABLE_N[key] = function
        return function

    return keep


@register_N('a')
def use_N(net):
    BODY
""",
        'TABLE_N["a"]($)',
    ),
    "registry that is an object": (
        "net",
        """\
class Registry_N:
    def __init__(self):
        self.table = {}

    def register(self, key):
        def keep(made):
            self.table[key] = made
            return made

        return keep

    def build(self, key, *args, **kwargs):
        return self.table[key](*args, **kwargs)


RUNNERS_N = Registry_N()


@RUNNERS_N.register('a')
class Runner_N:
    def __init__(self, net):
        self.net = net

    def run(self):
        net = self.net
        BODY
""",
        "RUNNERS_N.build('a', net=$).run()",
    ),
    "heirs that register themselves": (
        "net",
        """\
class Base_N:
    heirs = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Base_N.heirs[cls.__name__] = cls


class Runner_N(Base_N):
    def run(self, net):
        BODY
""",
        'Base_N.heirs["Runner_N"]().run($)',
    ),
    "metaclass": (
        "net",
        """\
MADE_N = {}


class Meta_N(type):
    def __new__(mcs, name, bases, attributes):
        made = super().__new__(mcs, name, bases, attributes)
        MADE_N[name] = made
        return made


class Runner_N(metaclass=Meta_N):
    def run(self, net):
        BODY
""",
        'MADE_N["Runner_N"]().run($)',
    ),
    "heirs of a class": (
        "net",
        """\
class Base_N:
    pass


class Runner_N(Base_N):
    def run(self, net):
        BODY
""",
        """\
for each_N in Base_N.__subclasses__():
    each_N().run($)
""",
    ),
    "hook by a part of its name": (
        "net",
        """\
class Hook_N:
    def after_step(self, net):
        BODY
""",
        """\
for when_N in ("step",):
    getattr(Hook_N(), f"after_{when_N}")($)
""",
    ),
    "static hook": (
        "net",
        """\
class Hook_N:
    @staticmethod
    def after_step(net):
        BODY
""",
        """\
for when_N in ("step",):
    getattr(Hook_N, f"after_{when_N}")($)
""",
    ),
    "static hook of an object": (
        "net",
        """\
class Hook_N:
    @staticmethod
    def after_step(net):
        BODY
""",
        """\
for when_N in ("step",):
    getattr(Hook_N(), f"after_{when_N}")($)
""",
    ),
    "class's hook": (
        "net",
        """\
class Hook_N:
    @classmethod
    def after_step(cls, net):
        BODY
""",
        """\
for when_N in ("step",):
    getattr(Hook_N, f"after_{when_N}")($)
""",
    ),
    "hooks by names in a list": (
        "net",
        """\
class Hook_N:
    def first(self, net):
        pass

    def second(self, net):
        BODY
""",
        """\
for name_N in ["first", "second"]:
    getattr(Hook_N(), name_N)($)
""",
    ),
    "own method by a name": (
        "net",
        """\
class Trainer_N:
    def __init__(self, net):
        self.net = net

    def run(self, what):
        return getattr(self, "do_" + what)()

    def do_save(self):
        net = self.net
        BODY
""",
        'Trainer_N($).run("save")',
    ),
    "methodcaller": (
        "net",
        """\
class Runner_N:
    def run(self, net):
        BODY
""",
        'operator.methodcaller("run", $)(Runner_N())',
    ),
    "singledispatch": (
        "net",
        """\
@functools.singledispatch
def use_N(net):
    pass


@use_N.register(nn.Module)
def use_module_N(net):
    BODY
""",
        "use_N($)",
    ),
    "exit": (
        "net",
        """\
def use_N(net):
    BODY
""",
        """\
atexit_N = [(use_N, ($,))]
for function_N, args_N in atexit_N:
    function_N(*args_N)
""",
    ),
    "exit stack's callback": (
        "net",
        """\
def use_N(net):
    BODY
""",
        """\
with contextlib.ExitStack() as stack_N:
    stack_N.callback(use_N, $)
""",
    ),
    "thread": (
        "net",
        """\
def use_N(net):
    BODY
""",
        """\
thread_N = threading.Thread(target=use_N, args=($,))
thread_N.start()
thread_N.join()
""",
    ),
    "thread of its own": (
        "net",
        """\
class Thread_N(threading.Thread):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def run(self):
        net = self.net
        BODY
""",
        """\
thread_N = Thread_N($)
thread_N.start()
thread_N.join()
""",
    ),
    "submitted": (
        "net",
        """\
def use_N(net):
    BODY
""",
        """\
with concurrent.futures.ThreadPoolExecutor() as pool_N:
    pool_N.submit(use_N, $).result()
""",
    ),
    "mapped by a pool": (
        "net",
        """\
def use_N(net):
    BODY
""",
        """\
with concurrent.futures.ThreadPoolExecutor() as pool_N:
    list(pool_N.map(use_N, [$]))
""",
    ),
    "events": (
        "net",
        """\
class Events_N:
    def __init__(self):
        self.handlers = collections.defaultdict(list)

    def on(self, event, function):
        self.handlers[event].append(function)

    def fire(self, event, *args):
        for function in self.handlers[event]:
            function(*args)


def use_N(net):
    BODY
""",
        """\
events_N = Events_N()
events_N.on("save", use_N)
events_N.fire("save", $)
""",
    ),
    "events by a decorator": (
        "net",
        """\
class Events_N:
    def __init__(self):
        self.handlers = {}

    def on(self, event):
        def keep(function):
            self.handlers.setdefault(event, []).append(function)
            return function

        return keep

    def fire(self, event, *args):
        for function in self.handlers[event]:
            function(*args)


events_N = Events_N()


@events_N.on('save')
def use_N(net):
    BODY
""",
        'events_N.fire("save", $)',
    ),
    "callbacks": (
        "net",
        """\
class Callback_N:
    def on_save(self, trainer):
        pass


class Saver_N(Callback_N):
    def on_save(self, trainer):
        net = trainer.net
        BODY


class Trainer_N:
    def __init__(self, net, callbacks):
        self.net = net
        self.callbacks = callbacks

    def call(self, name):
        for callback in self.callbacks:
            getattr(callback, name)(self)
""",
        'Trainer_N($, [Callback_N(), Saver_N()]).call("on_save")',
    ),
    "field that is a function": (
        "net",
        """\
@dataclasses.dataclass
class Steps_N:
    save: typing.Callable


def use_N(net):
    BODY
""",
        "Steps_N(save=use_N).save($)",
    ),
    "enum of functions": (
        "net",
        """\
def use_N(net):
    BODY


class Steps_N(enum.Enum):
    SAVE = functools.partial(use_N)
""",
        "Steps_N.SAVE.value($)",
    ),
    "class in a dict": (
        "net",
        """\
class Runner_N:
    def run(self, net):
        BODY


RUNNERS_N = {"a": Runner_N}
""",
        'RUNNERS_N["a"]().run($)',
    ),
    "attribute of a class": (
        "net",
        """\
class Runner_N:
    def run(self, net):
        BODY


class Config_N:
    runner = Runner_N
""",
        "Config_N.runner().run($)",
    ),
    "method set from outside": (
        "self.net",
        """\
class Trainer_N:
    def __init__(self, net):
        self.net = net


def step_N(self):
    BODY


Trainer_N.step = step_N
""",
        "Trainer_N($).step()",
    ),
    "method set by setattr": (
        "self.net",
        """\
class Trainer_N:
    def __init__(self, net):
        self.net = net


def step_N(self):
    BODY


setattr(Trainer_N, "step", step_N)
""",
        "Trainer_N($).step()",
    ),
    "bound by MethodType": (
        "self.net",
        """\
class Trainer_N:
    def __init__(self, net):
        self.net = net


def step_N(self):
    BODY
""",
        """\
trainer_N = Trainer_N($)
trainer_N.step = types.MethodType(step_N, trainer_N)
trainer_N.step()
""",
    ),
    "bound by __get__": (
        "self.net",
        """\
class Trainer_N:
    def __init__(self, net):
        self.net = net


def step_N(self):
    BODY
""",
        """\
trainer_N = Trainer_N($)
trainer_N.step = step_N.__get__(trainer_N)
trainer_N.step()
""",
    ),
    "class made by type": (
        "self.net",
        """\
class Base_N:
    def __init__(self, net):
        self.net = net


def step_N(self):
    BODY
""",
        'type("Made_N", (Base_N,), {"step": step_N})($).step()',
    ),
    "partialmethod": (
        "net",
        """\
class Trainer_N:
    def run(self, what, net):
        BODY

    save = functools.partialmethod(run, 'save')
""",
        "Trainer_N().save($)",
    ),
    "sent to a generator": (
        "net",
        """\
def worker_N():
    net = yield
    BODY
    yield
""",
        """\
worker_N_ = worker_N()
next(worker_N_)
worker_N_.send($)
""",
    ),
    "operator": (
        "net",
        """\
class Step_N:
    def __or__(self, net):
        BODY
        return self
""",
        "step_N = Step_N() | $",
    ),
    "augmented operator": (
        "net",
        """\
class Step_N:
    def __rshift__(self, net):
        BODY
        return self
""",
        """\
step_N = Step_N()
step_N >>= $
""",
    ),
    "__setitem__": (
        "net",
        """\
class Steps_N:
    def __setitem__(self, key, net):
        BODY
""",
        'Steps_N()["a"] = $',
    ),
    "__contains__": (
        "net",
        """\
class Steps_N:
    def __contains__(self, net):
        BODY
        return True
""",
        "print($ in Steps_N())",
    ),
    "__setattr__": (
        "net",
        """\
class Steps_N:
    def __setattr__(self, name, net):
        BODY
""",
        "Steps_N().net = $",
    ),
    "descriptor's __set__": (
        "net",
        """\
class Field_N:
    def __set__(self, holder, net):
        BODY


class Holder_N:
    net = Field_N()
""",
        "Holder_N().net = $",
    ),
    "descriptor's __get__": (
        "net",
        """\
class Field_N:
    def __get__(self, holder, owner):
        net = holder.held
        BODY
        return net


class Holder_N:
    net = Field_N()

    def __init__(self, net):
        self.held = net
""",
        "print(Holder_N($).net)",
    ),
    "__missing__": (
        "net",
        """\
class Nets_N(dict):
    def __missing__(self, net):
        BODY
        return net
""",
        "print(Nets_N()[$])",
    ),
    "__del__": (
        "net",
        """\
class Last_N:
    def __init__(self, net):
        self.net = net

    def __del__(self):
        net = self.net
        BODY
""",
        """\
last_N = Last_N($)
del last_N
""",
    ),
    "__exit__": (
        "net",
        """\
class Last_N:
    def __init__(self, net):
        self.net = net

    def __enter__(self):
        return self

    def __exit__(self, *_):
        net = self.net
        BODY
""",
        """\
with Last_N($):
    pass
""",
    ),
    "__next__": (
        "net",
        """\
class Each_N:
    def __init__(self, net):
        self.net = net

    def __iter__(self):
        return self

    def __next__(self):
        net = self.net
        BODY
        raise StopIteration
""",
        """\
for _ in Each_N($):
    pass
""",
    ),
    "asynchronous generator": (
        "net",
        """\
async def each_N(net):
    yield net


async def main_N(given):
    async for net in each_N(given):
        BODY
""",
        "asyncio.run(main_N($))",
    ),
    "gathered": (
        "net",
        """\
async def use_N(net):
    BODY


async def main_N(net):
    await asyncio.gather(use_N(net), use_N(net))
""",
        "asyncio.run(main_N($))",
    ),
    "context manager's body": (
        "net",
        """\
@contextlib.contextmanager
def around_N(net):
    yield
    BODY
""",
        """\
with around_N($):
    pass
""",
    ),
    "decorator with a body": (
        "net",
        """\
def saved_N(function):
    @functools.wraps(function)
    def inner(net):
        BODY
        return function(net)

    return inner


@saved_N
def same_N(net):
    return net
""",
        "same_N($)",
    ),
    "class as a decorator": (
        "net",
        """\
class saved_N:
    def __init__(self, function):
        self.function = function

    def __call__(self, net):
        BODY
        return self.function(net)


@saved_N
def same_N(net):
    return net
""",
        "same_N($)",
    ),
    "cached factory": (
        "net",
        """\
@functools.lru_cache
def runner_N():
    return Runner_N()


class Runner_N:
    def run(self, net):
        BODY
""",
        "runner_N().run($)",
    ),
    "filter": (
        "net",
        """\
def use_N(net):
    BODY
    return True
""",
        "list(filter(use_N, [$]))",
    ),
    "sort key": (
        "net",
        """\
def use_N(net):
    BODY
    return 1
""",
        "sorted([$], key=use_N)",
    ),
    "any of a generator": (
        "net",
        """\
def use_N(net):
    BODY
    return True
""",
        "any(use_N(each) for each in [$])",
    ),
    "starmap": (
        "net",
        """\
def use_N(net):
    BODY
""",
        "list(itertools.starmap(use_N, [($,)]))",
    ),
    "finally": (
        "net",
        "",
        """\
net = $
try:
    pass
finally:
    BODY
""",
    ),
    "finalizer": (
        "net",
        """\
def use_N(net):
    BODY
""",
        """\
class Key_N:
    pass
key_N = Key_N()
weakref.finalize(key_N, use_N, $)()
""",
    ),
    "proxy by __getattr__": (
        "self.net",
        """\
class Trainer_N:
    def __init__(self, net):
        self.net = net

    def step(self):
        BODY


class Proxy_N:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)
""",
        "Proxy_N(Trainer_N($)).step()",
    ),
    "template method": (
        "net",
        """\
class Base_N:
    def __call__(self, net):
        self.before(net)

    def before(self, net):
        pass


class Heir_N(Base_N):
    def before(self, net):
        BODY
""",
        """\
for made_N in (Heir_N,):
    made_N()($)
""",
    ),
    "method of a mixin by a name": (
        "net",
        """\
class Saves_N:
    def save_all(self):
        net = self.net
        BODY


class Trainer_N(Saves_N):
    def __init__(self, net):
        self.net = net

    def go(self):
        for name in dir(self):
            if name.startswith("save_"):
                getattr(self, name)()
""",
        "Trainer_N($).go()",
    ),
    "attrgetter": (
        "net",
        """\
class Runner_N:
    def run(self, net):
        BODY
""",
        'operator.attrgetter("run")(Runner_N())($)',
    ),
    "itemgetter": (
        "net",
        """\
def use_N(net):
    BODY
""",
        'operator.itemgetter("a")({"a": use_N})($)',
    ),
    "raised": (
        "net",
        """\
class Found_N(Exception):
    def __init__(self, net):
        self.net = net


def find_N(net):
    raise Found_N(net)
""",
        """\
try:
    find_N($)
except Found_N as found:
    net = found.net
    BODY
""",
    ),
    "raised, as an argument": (
        "net",
        """\
def find_N(net):
    raise RuntimeError(net)
""",
        """\
try:
    find_N($)
except RuntimeError as found:
    net = found.args[0]
    BODY
""",
    ),
}
"""What the model is called in the code, the code with its BODY, and how `main` comes to it with the model `$`."""


def program_of(name: str, use: str) -> dict[str, str]:
    """A program that comes to the use of its FSDP model in one of these ways."""
    model, top, call = WAYS[name]
    lines = use.replace("$", model)

    def fill(text: str) -> str:
        return "\n".join(map(_filled, text.replace("_N", "_1").replace("$", "fsdp").split("\n")))

    def _filled(line: str) -> str:
        return indent(lines, line.removesuffix("BODY")) if line.strip() == "BODY" else line

    draft = Draft(Random(0), [fill(top).strip()] if top else [])
    return program(draft, ["fsdp = FSDP(Net())", *fill(call).strip().splitlines()])
