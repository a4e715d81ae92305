"""The training loop that saves are measured in. Runs in each trainer, in lockstep."""

import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict

from . import model as mixture

STEP_SECONDS = 1.0
CONTEXT = 16              # tokens of one sequence
MOST_SEQUENCES = 512
CALIBRATION_SEQUENCES = (4, 16)
BASELINE_STEPS = 3


def sequences_for(step_seconds, measured):
    """How many sequences make a step this long, from [(sequences, seconds)] of two. Pure."""
    (few, few_seconds), (many, many_seconds) = measured
    per_sequence = (many_seconds - few_seconds) / (many - few)
    fixed = few_seconds - few * per_sequence
    if per_sequence <= 0:
        return few
    return min(MOST_SEQUENCES, max(1, round((step_seconds - fixed) / per_sequence)))


def extra_seconds(steps, baseline):
    """By how much steps took longer than as many of the baseline, never less than 1 ms:
    a ratio of two such numbers stays finite. Pure."""
    return max(sum(steps) - len(steps) * baseline, 0.001)


class Training:
    """A model in training. All memory of its state has been touched."""

    def __init__(self, sizes, world_size):
        self._sizes = sizes
        self.model = mixture.build_fsdp2(sizes, world_size)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        # Gives every parameter its moments, also those whose expert was never used.
        model_state, optimizer_state = get_state_dict(self.model, self.optimizer)
        self.state = {"model": model_state, "optimizer": optimizer_state}
        with torch.no_grad():
            for parameter, moments in self.optimizer.state.items():
                moments["exp_avg"].copy_(parameter)
                moments["exp_avg_sq"].copy_(parameter)
                moments["exp_avg_sq"].abs_()
        self._step = 0
        self.sequences = CALIBRATION_SEQUENCES[0]

    def forward_and_backward(self):
        """Seconds that it took."""
        self._step += 1
        generator = torch.Generator().manual_seed(self._step)
        tokens = torch.randint(mixture.VOCABULARY, (self.sequences, CONTEXT + 1), generator=generator)
        begun = time.monotonic()
        logits = self.model(tokens[:, :-1], self._step % self._sizes.experts)
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        return time.monotonic() - begun

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def calibrate(self):
        """Chooses the batch; the seconds of a step's forward and backward then."""
        measured = []
        for self.sequences in CALIBRATION_SEQUENCES:
            measured.append((self.sequences, self._median_step(BASELINE_STEPS)))
        self.sequences = agreed(sequences_for(STEP_SECONDS, measured))
        return self._median_step(BASELINE_STEPS + 2)

    def _median_step(self, count):
        seconds = []
        for _ in range(count + 1):  # the first one warms up
            seconds.append(self.forward_and_backward())
            self.update()
        return statistics.median(seconds[1:])

    def run(self, competitor, place):
        """Trains with one save in the middle, until that is durable.

        What the trainer was blocked is the save's call and its wait at the fence; neither
        is part of a step's time.
        """
        baseline = [self._iteration() for _ in range(BASELINE_STEPS)]
        iteration = statistics.median(seconds for seconds, _ in baseline)
        dist.barrier()
        begun = time.monotonic()
        saving = competitor.save(self.state, place)
        blocked = time.monotonic() - begun
        steps = []
        while not all_agree(saving.is_durable()):
            step_begun = time.monotonic()
            self.forward_and_backward()
            at_fence = time.monotonic()
            if not steps:
                saving.wait_snapshot()
            waited = time.monotonic() - at_fence
            blocked += waited
            self.update()
            steps.append(time.monotonic() - step_begun - waited)
        saving.wait_durable()
        return {"blocked_seconds": blocked, "steps": len(steps),
                "extra_seconds": extra_seconds(steps, iteration),
                "step_seconds": statistics.median(seconds for _, seconds in baseline)}

    def _iteration(self):
        """Seconds of it all, and of forward and backward."""
        begun = time.monotonic()
        seconds = self.forward_and_backward()
        self.update()
        return time.monotonic() - begun, seconds


def agreed(number):
    """Rank 0's."""
    numbers = torch.tensor([number])
    dist.broadcast(numbers, 0)
    return int(numbers.item())


def all_agree(condition):
    """Whether it holds in all ranks."""
    holds = torch.tensor([int(condition)])
    dist.all_reduce(holds, dist.ReduceOp.MIN)
    return bool(holds.item())
