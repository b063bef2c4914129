"""How `fsdp2_support.py` is put together, read back and extended."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from fsdp_migrate import support
from fsdp_migrate.support import asked_by, available, everything, parse
from fsdp_migrate.support import compose as composed
from fsdp_migrate.support import update as updated
from fsdp_migrate.support.library import MODULES, library, read

FUNCTIONS = Path(support.__file__).with_name("functions")


def compose(names: Iterable[str]) -> str:
    return composed(everything(names))


def update(text: str, names: Iterable[str]) -> str:
    return updated(text, everything(names))


def test_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError, match="no_such_function"):
        compose(["no_such_function"])


def test_composing_and_its_import_need_no_torch() -> None:
    run = "compose(everything(available()))"
    code = f"import sys; from fsdp_migrate.support import *; {run}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_module_is_listed() -> None:
    modules = {path.stem for path in FUNCTIONS.glob("*.py")} - {"__init__"}
    assert modules == set(MODULES)


def test_alone_each_name_has_all_it_needs_and_no_more(tmp_path: Path) -> None:
    for name in available():
        text = compose([name])
        found = read(text)
        assert name in found.definitions
        used = frozenset[str]().union(*(definition.uses for definition in found.definitions.values()))
        assert found.definitions.keys() - {name} <= used, "a definition that nothing uses"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    # Names that are not defined, and imports that are not used.
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_definitions_use_only_what_stands_before_them() -> None:
    seen: set[str] = set()
    definitions = library().definitions
    for name, definition in definitions.items():
        assert definition.uses & definitions.keys() <= seen, name
        seen.add(name)


def test_every_function_and_class_says_why_it_exists() -> None:
    tree = ast.parse(compose(available()))
    definitions = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    silent = [node.name for node in definitions if not ast.get_docstring(node)]
    assert not silent


def test_nothing_of_fsdp1_is_imported() -> None:
    gone = {"FullyShardedDataParallel", "wrap"}  # torch's own settings are plain data, and stay
    for statement in library().imports.values():
        assert "fsdp_migrate" not in statement
        assert not gone & set(statement.replace(",", " ").split()[3:])


def test_comments_above_a_constant_come_with_it() -> None:
    assert "# What `set_state_dict_type` set" in compose(["state_dict_type"])


def test_order_of_names_does_not_matter() -> None:
    names = sorted(available())
    assert compose(names) == compose(reversed(names))
    assert compose(["no_sync", "unwrap"]) == compose(["unwrap", "no_sync"])


@pytest.mark.parametrize("width", [88, 100, 120])
@pytest.mark.parametrize("names", [["unwrap"], ["state_dict_type"], ["shard_model", "wrap"], sorted(available())])
def test_composed_file_is_clean(names: list[str], width: int) -> None:
    text = composed(everything(names), width=width)
    own = ["--isolated", "--line-length", str(width)]
    for command in (["check", *own, "--extend-select", "E501"], ["check"], ["format", "--check", *own]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", "fsdp2_support.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_parse_finds_what_was_composed() -> None:
    assert parse("") == frozenset()
    assert parse("def somebody_elses(): ...\n") == frozenset()
    assert parse(compose(["unwrap"])) == {"unwrap"}
    assert parse(compose(available())) == available()


def test_update_leaves_a_file_that_has_everything() -> None:
    text = compose(["shard_model"])
    assert update(text, ["shard_model", "resolve_mesh"]) is text
    shorter = text.replace("    ", "  ")
    assert update(shorter, ["shard_model"]) is shorter


def test_update_recomposes_a_file_nobody_touched() -> None:
    more = ["no_sync", "shard_model"]
    assert update(compose(["unwrap"]), more) == compose(["unwrap", *more])


def test_a_policy_of_the_program_s_own_settings_is_served_where_one_is_named() -> None:
    """Without, what only such a policy can ask for is not there; one that comes nevertheless is refused."""
    asked = {"shard_model": frozenset({"module", "auto_wrap_policy"})}
    named: support.Asked = {**asked, "CustomPolicy": frozenset()}
    text, more = composed(asked), composed(named)
    assert "CustomPolicy" not in text
    assert "if any(units.values()):\n            raise NotImplementedError" in text
    assert parse(more) > parse(text)
    assert updated(text, named) == more
    assert updated(more, asked) is more
    assert updated(composed({"unwrap": frozenset()}), {**named, "unwrap": frozenset()}) == composed(
        {**named, "unwrap": frozenset()}
    )


def test_kind_of_checkpoint_that_no_call_sets_is_not_written() -> None:
    """Where each call sets FULL_STATE_DICT, nothing asks which kind it is."""
    read, mark = {"model_state_dict": frozenset({"model"})}, frozenset[str]()
    call = "set_state_dict_type(model, StateDictType.{}, state_dict_config=config)"
    full, sharded = (
        asked_by(ast.parse(call.format(kind)), {"set_state_dict_type": "set_state_dict_type"})
        for kind in ("FULL_STATE_DICT", "SHARDED_STATE_DICT")
    )
    assert sharded == {**full, "ShardedStateDictConfig": mark}
    text, more = composed({**read, **full}), composed({**read, **sharded})
    assert "Sharded" not in text
    assert "offload(" not in text
    assert "offload(" in more
    assert updated(text, {**read, **sharded}) == more
    assert updated(more, {**read, **full}) is more


def test_shards_are_looked_for_where_a_rank_is_asked_for() -> None:
    for given in (frozenset({"rank0_only"}), frozenset[str]()):
        text = composed({"full_optim_state_dict": given | {"model", "optim"}})
        assert ("shards" in text) == bool(given)
        assert parse(text) == {"full_optim_state_dict"}


def test_wide_program_has_wide_imports() -> None:
    asked = {"load_optimizer_state": frozenset({"model", "optim", "state_dict"})}
    usual, wide = composed(asked), composed(asked, width=120)
    assert "state_dict import (\n" in usual
    assert "state_dict import StateDictOptions, set_optimizer_state_dict\n" in wide
    assert updated(wide, {**asked, "unwrap": frozenset({"model"})}) == composed(
        {**asked, "unwrap": frozenset({"model"})}, width=120
    )


def test_docstrings_are_written_as_far_as_their_first_paragraph() -> None:
    """What follows is for whoever changes the function here, and a parameter that is gone has no sentence."""
    tree = ast.parse(composed(everything(available()), width=120))
    functions = [each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))]
    assert [each.name for each in functions if "\n" in (ast.get_docstring(each) or "")] == []
    asked = ({"full_state_dict": frozenset({"model", *more})} for more in (("rank0_only",), ()))
    whole, cut = (composed(each, width=120) for each in asked)
    assert "Collective. With `rank0_only`, {} elsewhere." in whole
    assert 'Collective."""' in cut


def test_update_keeps_edits_and_additions() -> None:
    text = compose(["unwrap"]).replace("else model.module", "else model.inner") + "\n\nMINE = 1\n"
    new = update(text, ["unwrap", "no_sync", "state_dict_type", "shard_model"])
    compile(new, "fsdp2_support.py", "exec")
    assert "else model.inner" in new
    assert new.count("def unwrap") == 1
    assert "MINE = 1" in new
    assert parse(new) == parse(compose(["unwrap", "no_sync", "state_dict_type", "shard_model"]))
    assert update(new, ["no_sync"]) is new
    found = read(new)
    assert {"nn", "WeakKeyDictionary", "contextmanager"} <= found.imports.keys()
    assert new.count("from torch import nn\n") == 1
    assert new.index("from weakref") < new.index("def unwrap")


def test_update_keeps_line_endings() -> None:
    text = (compose(["unwrap"]) + "\nMINE = 1\n").replace("\n", "\r\n")
    new = update(text, ["no_sync"])
    assert new.count("\n") == new.count("\r\n")
    assert new.replace("\r\n", "\n") == update(text.replace("\r\n", "\n"), ["no_sync"])


def test_update_of_an_empty_file() -> None:
    assert parse(update("", ["unwrap"])) == {"unwrap"}
    compile(update("", ["no_sync"]), "fsdp2_support.py", "exec")


def test_what_the_file_is_said_to_be_fits_on_a_line() -> None:
    assert composed(everything(["unwrap"]), width=80).splitlines()[1] == ""
