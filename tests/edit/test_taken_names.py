"""Names that one file of a program imports from another: none is gone from where it is taken."""

from __future__ import annotations

import pytest

from fsdp_migrate.edit.taken_names import TakenNames

from ..helpers import code, rewrite_files, run_files

WRAP = code("""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy


    def wrap(net, strategy=None):
        return FSDP(net)
    """)

READING = {
    "by its name": ("from own.wrap import ShardingStrategy\n", "ShardingStrategy"),
    "in a function": (
        "def f():\n    from own.wrap import ShardingStrategy\n    return ShardingStrategy.NO_SHARD\n",
        "",
    ),
    "under another name": ("from own.wrap import ShardingStrategy as Kind\n", "Kind"),
    "of the module": ("from own import wrap\n", "wrap.ShardingStrategy"),
    "of the module, whole": ("import own.wrap\n", "own.wrap.ShardingStrategy"),
    "with all there is": ("from own.wrap import *\n", "ShardingStrategy"),
    "that is handed on": ("from own import ShardingStrategy\n", "ShardingStrategy"),
    "for others, by __all__": ("from own.wrap import ShardingStrategy\n\n__all__ = ['ShardingStrategy']\n", ""),
}


@pytest.mark.parametrize(("line", "name"), READING.values(), ids=READING)
def test_a_name_that_another_file_reads_stays(line: str, name: str) -> None:
    package = "from .wrap import ShardingStrategy\n" if "from own import S" in line else ""
    files = {
        "own/__init__.py": package,
        "own/wrap.py": WRAP,
        "conf.py": line + (f"\nSTRATEGY = {name}.SHARD_GRAD_OP\n" if name else ""),
        "train.py": "import conf\nfrom own.wrap import wrap\n\nmodel = wrap(net)\n",
    }
    result = rewrite_files(files)
    assert "    return fully_shard(net)\n" in result.after["own/wrap.py"]
    assert "import ShardingStrategy, fully_shard\n" in result.after["own/wrap.py"]
    assert result.after["conf.py"] == files["conf.py"]
    assert result.after["own/__init__.py"] == package


def test_a_name_that_is_only_handed_on_goes_there_too() -> None:
    files = {
        "own/__init__.py": "from .wrap import FSDP, wrap  # the wrapper\nfrom .more import other\n",
        "own/wrap.py": WRAP,
        "own/more.py": "def other():\n    pass\n",
        "between.py": "from own import FSDP\nfrom own import wrap\n",
        "train.py": "from between import wrap\n\nmodel = wrap(net)\n",
    }
    result = rewrite_files(files)
    assert result.after["own/__init__.py"] == "from .wrap import wrap  # the wrapper\nfrom .more import other\n"
    assert result.after["between.py"] == "from own import wrap\n"
    assert "ShardingStrategy" not in result.after["own/wrap.py"]


def test_what_a_file_of_the_same_name_has_is_left() -> None:
    files = {
        "own/wrap.py": WRAP,
        "other/wrap.py": "class FSDP:\n    '''Not torch's.'''\n",
        "conf.py": "from other.wrap import FSDP\nimport own.wrap\n\nprint(FSDP)\n",
        "train.py": "import conf\nfrom own.wrap import wrap\n\nmodel = wrap(net)\n",
    }
    assert rewrite_files(files).after["conf.py"] == files["conf.py"]


def test_a_program_whose_file_would_lack_a_name_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TakenNames, "settled", lambda self: self._tidied)
    files = {
        "own.py": WRAP,
        "conf.py": "from own import ShardingStrategy\n\nSTRATEGY = ShardingStrategy.SHARD_GRAD_OP\n",
        "train.py": "import conf\nfrom own import wrap\n\nmodel = wrap(net)\n",
    }
    result = run_files(files)
    assert result.after == files
    assert "another file takes `ShardingStrategy` from it, which goes" in str(result.report.errors)
