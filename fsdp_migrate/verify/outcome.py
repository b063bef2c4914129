"""Turns a watched run into an observation, or into the failure that explains it best."""

from __future__ import annotations

import re
import signal
from typing import Any

from fsdp_migrate.verify.observation import Observation, merge
from fsdp_migrate.verify.records import RankRecords
from fsdp_migrate.verify.report import Failure
from fsdp_migrate.verify.watch import Watched

_GOOD_ENDS = ("max_steps", "finished")
_LOG_TAIL_LINES = 40
_CANNOT_WRITE = 74
"""Exit code of a probe that cannot write its records, see fsdp_migrate/probe/writer.py."""
SPACE_HINT = "free space there, or choose another folder with --keep DIR or TMPDIR"
_LEAST_ROOM = 2**16
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "File too large")
_PORT_TAKEN = ("EADDRINUSE", "address already in use", "Address already in use")
_PORT_HINT = "end the process that holds the port, or do not give a fixed one (MASTER_PORT, --master-port)"
_PEER_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
_SIGNAL_HINTS = {
    9: "SIGKILL is mostly the out-of-memory killer: use fewer processes, or a smaller batch or model",
    11: "a segmentation fault in native code: run the program by itself to see whether it is the program's",
}
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)
_TORCHRUN_EXIT = re.compile(r"rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL)


def outcome(name: str, watched: Watched, world: int) -> Observation | Failure:
    """`name` is the side as the user knows it.

    A run counts by its records: when every rank wrote its end marker, an abort of gloo at interpreter exit changes
    nothing. The exit code of torchrun alone is never believed.
    """
    if watched.hung is not None:
        return _left(name, watched) or _hang(name, watched)
    ends = {rank.rank: rank.end for rank in watched.ranks}
    if ends and all(end and end["reason"] in _GOOD_ENDS for end in ends.values()):
        if len(ends) == world:
            return merge(watched.ranks)
        if watched.returncode == 0:
            return _other_number(name, len(ends), world)
    return _killed(name, watched) or _left(name, watched) or _gave_up(name, watched) or _vanished(name, watched, world)


def _other_number(name: str, found: int, world: int) -> Failure:
    return Failure(
        name,
        f"the {name} program starts {found} processes by itself, and {world} were asked for",
        f"ask for {found} of them, or let the program start as many as torch.cuda.device_count() says",
    )


def worth_a_retry(watched: Watched) -> bool:
    """Whether native code took a rank down, and the others at most lost their connection to it.

    gloo does that now and then for reasons of its own: it aborts, or one of its threads runs into freed memory. A
    program that does it by itself does it again.
    """
    raised = [_end_of(rank) for rank in watched.ranks if rank.end and rank.end["reason"] == "exception"]
    if watched.hung is not None or not all(_lost_its_peer(end["message"]) for end in raised):
        return False
    codes = _exit_codes(watched)
    # Where another rank was the first to fail, torchrun does not say how this one ended.
    unknown = {None} if raised else set()
    crashed = {-signal.SIGABRT, -signal.SIGSEGV} | unknown
    return any(codes.get(rank.rank) in crashed for rank in watched.ranks if not rank.end)


def _gave_up(name: str, watched: Watched) -> Failure | None:
    """The rank that raised or exited first: the others are mostly the consequences."""
    gone = [rank for rank in watched.ranks if rank.end and rank.end["reason"] in ("exception", "exit")]
    if not gone:
        return None
    first = min(gone, key=lambda rank: float(_end_of(rank)["t"]))
    end = _end_of(first)
    if end["reason"] == "exit":
        return Failure(
            name,
            f"rank {first.rank} of the {name} program called sys.exit({end['code']}) after {first.steps} steps",
            "run the program by itself with these arguments and see why it exits",
            first.rank,
            log=_tail(watched.log),
        )
    return Failure(
        name,
        f"rank {first.rank} of the {name} program raised {end['type']}{_words(end)}",
        _cure(end["type"], end["message"], bool(end.get("ours")), name),
        first.rank,
        end["traceback"],
        _tail(watched.log),
    )


def _words(end: dict[str, Any]) -> str:
    """What an exception says; one that says nothing, as an assertion mostly does, is known by where it was raised."""
    message = str(end["message"]).strip()
    if message:
        return f": {message}"
    frames = re.findall(r'File "([^"]+)", line (\d+)', end["traceback"])
    return f" in {frames[-1][0].split('/')[-1]}:{frames[-1][1]}" if frames else ""


def _left(name: str, watched: Watched) -> Failure | None:
    """A rank that came to its end early; what the others then raised, or wait for, is its consequence."""
    early = [rank for rank in watched.ranks if rank.end and rank.end["reason"] == "finished"]
    first = min(early, key=lambda rank: rank.steps, default=None)
    others = [rank for rank in watched.ranks if _waits_or_lost_its_peer(rank, watched)]
    if first is None or len(early) + len(others) != len(watched.ranks) or not others:
        return None
    if first.steps > min(rank.steps for rank in others):
        return None
    stacks = [rank.end["traceback"] if rank.end else watched.stacks.get(rank.rank, "") for rank in others]
    return Failure(
        name,
        f"rank {first.rank} of the {name} program ended after {first.steps} steps, while rank "
        f"{', '.join(str(rank.rank) for rank in others)} went on",
        "every rank must make the same number of steps: look at what ends the loop, mostly data of unequal length",
        first.rank,
        stacks[0],
        _tail(watched.log),
    )


def _waits_or_lost_its_peer(rank: RankRecords, watched: Watched) -> bool:
    if rank.end is None:
        return watched.hung is not None
    return rank.end["reason"] == "exception" and _lost_its_peer(rank.end["message"])


def _vanished(name: str, watched: Watched, world: int) -> Failure:
    """No rank says why: a signal, or the launcher itself failed."""
    for rank, code in _exit_codes(watched).items():
        if code == _CANNOT_WRITE:
            return _no_space(name, rank, watched)
    if any(words in watched.log for words in _PORT_TAKEN):
        return Failure(name, f"the {name} program wanted a port that is in use", _PORT_HINT, log=_tail(watched.log))
    if watched.room < _LEAST_ROOM:  # then not even the output could be written
        silent = sorted({*range(world)} - {rank.rank for rank in watched.ranks if rank.end is not None})
        message = f"rank {', '.join(map(str, silent))} of the {name} program ended without a word: the disk is full"
        return Failure(name, message, SPACE_HINT, silent[0], log=_tail(watched.log))
    raised = _RAISED.findall(watched.log)
    if raised and not watched.ranks:
        message = f"the {name} program raised {raised[-1]} before it started its processes"
        return Failure(name, message, _cure(raised[-1].split(":")[0], raised[-1], False, name), log=_tail(watched.log))
    missing = world - sum(rank.end is not None for rank in watched.ranks)
    return Failure(
        name,
        f"{missing} of {world} ranks of the {name} program ended without a word (exit code {watched.returncode})",
        "the end of the output says why; if it names an option, check the arguments after --",
        log=_tail(watched.log),
    )


def _killed(name: str, watched: Watched) -> Failure | None:
    """A rank that a signal ended before it could say anything; what the others then raised is its consequence."""
    silent = [rank.rank for rank in watched.ranks if not rank.end]
    codes = _exit_codes(watched)
    # torchrun itself ends the rest with SIGTERM.
    signalled = [rank for rank in silent if codes.get(rank, 0) < 0 and -codes[rank] != signal.SIGTERM]
    if signalled:
        number = -codes[signalled[0]]
        return _killed_by(name, signalled[0], f"was killed by signal {number}", _SIGNAL_HINTS.get(number, ""), watched)
    raised = [_end_of(rank) for rank in watched.ranks if rank.end and rank.end["reason"] == "exception"]
    if len(silent) == 1 and raised and all(_lost_its_peer(end["message"]) for end in raised):
        return _killed_by(name, silent[0], "vanished, and the others lost their connection to it", "", watched)
    return None


def _killed_by(name: str, rank: int, what: str, hint: str, watched: Watched) -> Failure:
    return Failure(
        name, f"rank {rank} of the {name} program {what}", hint or _SIGNAL_HINTS[9], rank, log=_tail(watched.log)
    )


def _exit_codes(watched: Watched) -> dict[int, int]:
    """What torchrun says of the ranks that failed, as far as it does; negative: a signal."""
    return {int(rank): int(code) for rank, code in _TORCHRUN_EXIT.findall(watched.log)}


def _lost_its_peer(message: str) -> bool:
    return any(words in message for words in _PEER_LOST)


def _no_space(name: str, rank: int, watched: Watched) -> Failure:
    return Failure(
        name, f"rank {rank} could not write its records (disk full?)", SPACE_HINT, rank, log=_tail(watched.log)
    )


def _hang(name: str, watched: Watched) -> Failure:
    steps = {rank.rank: rank.steps for rank in watched.ranks}
    slowest = min(steps, key=lambda rank: steps[rank], default=None)
    places = {rank: _innermost(stack) for rank, stack in watched.stacks.items()}
    # The rank that is not waiting for the others is the one the others wait for.
    waiting = [rank for rank, place in places.items() if "distributed" in place or "autograd" in place]
    culprits = [rank for rank in places if rank not in waiting]
    culprit = culprits[0] if culprits else slowest
    where = "; ".join(f"rank {rank} is in {place}" for rank, place in sorted(places.items()))
    return Failure(
        name,
        f"the {name} program wrote nothing for {watched.hung:.0f} s (steps per rank: {steps}). {where}",
        "look at the stack of each rank: ranks that wait in different collectives took different branches; "
        "a long data load needs a larger --hang-timeout",
        culprit,
        "\n".join(f"--- rank {rank}\n{stack}" for rank, stack in sorted(watched.stacks.items())),
        _tail(watched.log),
    )


def _innermost(stack: str) -> str:
    """`file:line in function` at the top of the main thread, from faulthandler's text (most recent call first)."""
    main = stack.split("Current thread")[-1] if "Current thread" in stack else stack
    frames = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', main)
    if not frames:
        return "unknown"
    file, line, function = frames[0]
    return f"{'/'.join(file.split('/')[-3:])}:{line} in {function}"


def _end_of(rank: RankRecords) -> dict[str, Any]:
    assert rank.end is not None
    return rank.end


def _tail(log: str) -> str:
    return "\n".join(log.splitlines()[-_LOG_TAIL_LINES:])


def _cure(kind: str, message: str, ours: bool, name: str) -> str:
    if ours:
        return "this is a fault of fsdp-migrate, or of it with this torch: please report it with the traceback"
    if any(words in message for words in _PORT_TAKEN):
        return _PORT_HINT
    if any(words in message for words in _NO_SPACE):
        return SPACE_HINT
    if "nccl" in message.lower() or "cuda" in message.lower():
        return "the program needs CUDA: use --run-gpus, or --run-cpus with redirection on"
    if kind in ("FileNotFoundError", "ModuleNotFoundError"):
        return "the run starts in a copy of the program's tree: give absolute paths to data, or a wider root"
    if name == "rewritten":
        return "the original ran and the rewritten program does not: the traceback shows where the migration broke"
    return "run the program by itself with these arguments; a parity run needs an original that works"
