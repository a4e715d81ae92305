"""Who this process is, from the launcher's environment: torchrun, Slurm, or nobody."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import InvalidArgument


@dataclass(frozen=True)
class World:
    """This process's place in its run."""

    rank: int
    world_size: int
    local_world_size: int  # ranks on this machine; 0: not known
    run_token: str  # the same in all ranks of one run, another in the next run


def socket_dir_from(environment: Mapping[str, str], user_id: int) -> str:
    """The folder of the daemon's sockets: CKPTD_SOCKET_DIR, else the usual place."""
    given = environment.get("CKPTD_SOCKET_DIR")
    if given is not None:
        if not given.startswith("/"):
            raise InvalidArgument(f"CKPTD_SOCKET_DIR={given!r} is not an absolute path")
        return given
    if user_id == 0:
        return "/run/ckptd"
    runtime = environment.get("XDG_RUNTIME_DIR")
    if not runtime:
        raise InvalidArgument(
            "no folder for the daemon's sockets: neither CKPTD_SOCKET_DIR nor XDG_RUNTIME_DIR "
            "is set; set CKPTD_SOCKET_DIR, or pass socket_dir="
        )
    return os.path.join(runtime, "ckptd")


def world_from(
    environment: Mapping[str, str],
    rank: int | None = None,
    world_size: int | None = None,
    local_world_size: int | None = None,
    run_token: str | None = None,
) -> World:
    """What was given, completed from the environment.

    torchrun's variables come first, then Slurm's. A process that neither started is a
    world of one with a random token. Raises InvalidArgument naming the variable that is
    no number, or what is missing.
    """
    if rank is None and world_size is None:
        names = _launcher_names(environment)
        if names is not None:
            rank = _number(environment, names[0])
            world_size = _number(environment, names[1])
            if local_world_size is None:
                local_world_size = _local_world_size(environment, names[2])
            if run_token is None:
                run_token = _run_token(environment)
    if rank is None and world_size is None:
        rank, world_size = 0, 1
    if rank is None or world_size is None:
        raise InvalidArgument("rank= and world_size= are to be given both or neither")
    if run_token is None:
        run_token = _run_token(environment) if world_size > 1 else None
    if run_token is None:
        if world_size > 1:
            raise InvalidArgument(
                f"a world of {world_size} ranks needs a run token: neither TORCHELASTIC_RUN_ID nor "
                "SLURM_JOB_ID is set; pass run_token=, the same in all ranks and new for each run"
            )
        run_token = "lone-" + secrets.token_hex(16)
    return World(rank, world_size, local_world_size or 0, run_token)


def _launcher_names(environment: Mapping[str, str]) -> tuple[str, str, str] | None:
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"
    # A batch script's environment has SLURM_JOB_ID too, but no step and no rank.
    if "SLURM_PROCID" in environment and "SLURM_STEP_ID" in environment:
        return "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE"
    return None


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name)
    if text is None:
        raise InvalidArgument(f"{name} is not set, though the launcher's other variables are")
    if not (text.isascii() and text.isdecimal()):
        raise InvalidArgument(f"{name}={text!r} is not a number")
    return int(text)


def _local_world_size(environment: Mapping[str, str], name: str) -> int:
    if name not in environment:
        return 0
    if name == "LOCAL_WORLD_SIZE":
        return _number(environment, name)
    # Slurm writes "4(x2),3": known only where all nodes have the same number.
    text = environment[name].split("(")[0]
    uniform = "," not in environment[name] and text.isascii() and text.isdecimal()
    return int(text) if uniform else 0


def _run_token(environment: Mapping[str, str]) -> str | None:
    run_id = environment.get("TORCHELASTIC_RUN_ID")
    if run_id is not None:
        return f"torchelastic-{run_id}-{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    job_id = environment.get("SLURM_JOB_ID")
    if job_id is not None and "SLURM_STEP_ID" in environment:
        restarts = environment.get("SLURM_RESTART_COUNT", "0")
        return f"slurm-{job_id}-{environment['SLURM_STEP_ID']}-{restarts}"
    return None
