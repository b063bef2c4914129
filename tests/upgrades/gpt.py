"""The quickstart's GPT under FSDP1 in bf16, for 50 steps, of sizes that float8 takes: multiples of 16."""

from __future__ import annotations

from pathlib import Path

QUICKSTART = Path(__file__).parents[2] / "fixtures" / "quickstart" / "fsdp1" / "train.py"
CHANGES = {
    "101, 13, 33, 3, 131": "96, 16, 64, 4, 256",
    "import BackwardPrefetch": "import MixedPrecision",
    "limit_all_gathers=True": "mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
    "        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,\n": "",
    "range(20)": "range(50)",
    "cross_entropy(logits.flatten": "cross_entropy(logits.float().flatten",
}


def lay_out_gpt(folder: Path) -> Path:
    """Write the program into a new folder, and say where its script is."""
    text = QUICKSTART.read_text()
    for old, new in CHANGES.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(text)
    return script
