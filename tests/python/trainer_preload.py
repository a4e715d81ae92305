"""Imported once by the process that trainers are forked from: what each would otherwise
import anew, seconds for each. Opens no client: a forked child couldn't use it."""

import pytest  # noqa: F401  multiprocessing imports the main module again in each child
import torch.distributed as dist
import trainer_state

rank = trainer_state.Rank(rank=0, world_size=1, gate=None)
rank.warm_up()
dist.destroy_process_group()
del rank
