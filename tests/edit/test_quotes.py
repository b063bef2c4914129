"""What is written goes into a file of single quotes in single quotes; what the user wrote stays."""

from __future__ import annotations

import pytest

from codemods.template import Hole
from fsdp_migrate.edit.quotes import in_single_quotes
from tests.helpers import rewrite

HEAD = """\
import argparse

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy

parser = argparse.ArgumentParser()
parser.add_argument('--strategy', choices=['full', 'late', 'none'], default='full')
parser.add_argument('--name', default="it's")
args = parser.parse_args()
KINDS = {'full': ShardingStrategy.FULL_SHARD, 'late': ShardingStrategy.SHARD_GRAD_OP}


def shard(net):
"""
USE = "    return FSDP(net, sharding_strategy=KINDS[args.strategy])\n"


def test_a_file_of_single_quotes() -> None:
    text = rewrite(HEAD + USE).text
    assert "'late': {'reshard_after_forward': False}" in text
    assert 'default="it\'s"' in text


def test_a_file_of_double_quotes() -> None:
    text = rewrite(HEAD.replace("'", '"').replace('it"s', "its") + USE).text
    assert '"late": {"reshard_after_forward": False}' in text


def test_a_literal_of_the_user_inside_of_what_is_written_anew() -> None:
    text = rewrite(HEAD + USE.replace("args.strategy", '"late"')).text
    assert "'" not in text.partition("def shard")[2]


def test_a_statement_of_double_quotes_in_a_file_of_single_ones() -> None:
    kinds = '{"full": ShardingStrategy.FULL_SHARD, "late": ShardingStrategy.SHARD_GRAD_OP}[args.strategy]'
    written = rewrite(HEAD + USE.replace("KINDS[args.strategy]", kinds)).text.partition("def shard")[2]
    assert '"late": {"reshard_after_forward": False}' in written
    assert "'" not in written


def test_inside_of_an_f_string() -> None:
    text = rewrite(HEAD + "    model = FSDP(net)\n    print(f'{model._fsdp_wrapped_module.name} {model.world_size}')\n")
    assert "print(f'{model.name} {" in text.text


HOLE = Hole(1, 5, False, 7).text


@pytest.mark.parametrize(
    ("code", "written"),
    [
        ('raise ValueError(f"no strategy: {name}")', "raise ValueError(f'no strategy: {name}')"),
        ("f(\"a\", 'b')", "f('a', 'b')"),
        ('x = ("it\'s", "\\n", "")', 'x = ("it\'s", "\\n", \'\')'),
        ('f"{x[1]}" + rb"a" + f"it\'s {x}"', 'f\'{x[1]}\' + rb"a" + f"it\'s {x}"'),
        ('"""A "doc"."""\nreturn "a"', '"""A "doc"."""\nreturn \'a\''),
        (f'    if {HOLE} == "a":\n  b = "c"\n', f"    if {HOLE} == 'a':\n  b = 'c'\n"),
        (f'f"{HOLE}", "{HOLE}", "a"', f'f"{HOLE}", "{HOLE}", \'a\''),
        ('mesh["a"])', "mesh['a'])"),
        ('# a "word"\nf("a")', "# a \"word\"\nf('a')"),
    ],
)
def test_literals(code: str, written: str) -> None:
    assert in_single_quotes(code) == written
