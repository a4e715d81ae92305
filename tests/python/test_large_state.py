"""States that are larger than the arena: they go through it window by window."""

import pathlib
import re

import pytest
import torch

import ckptd
from trainer_process import Trainer, Trainers, new_name
from waiting import until

ARENA = "16MiB"


@pytest.fixture
def run():
    """run(daemon, world_size): the ranks of a new run, connected."""
    everyone = Trainers()

    def start(daemon, world_size, **options):
        token = new_name("run")
        trainers = Trainers(Trainer(rank, world_size) for rank in range(world_size))
        everyone.extend(trainers)
        trainers.each("connect", daemon.socket_dir, token, local_world_size=world_size, **options)
        return trainers

    yield start
    everyone.kill()


class Model(torch.nn.Module):
    """Of 52 MB: one parameter that is larger than the arena, several dtypes, odd sizes,
    a view that isn't contiguous, and buffers, which no optimizer guards."""

    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.large = torch.nn.Parameter(torch.randn(1237, 5003, generator=generator))
        self.halves = torch.nn.Parameter(torch.randn(777, 3001, generator=generator).bfloat16())
        self.turned = torch.nn.Parameter(torch.randn(2003, 1009, generator=generator).t())
        self.register_buffer("statistics", torch.randn(999_983, generator=generator).double())
        self.register_buffer("bytes", torch.randint(255, (1_500_001,), generator=generator,
                                                    dtype=torch.uint8))


def save_model(client, _mesh, job, step, changes_after):
    """Its parameters are fenced; what forward may change changes at once after save()."""
    model = Model(step)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    client.fence(optimizer)
    handle = client.save(job, step, {"model": model.state_dict(), "step": step})
    if changes_after:
        model.statistics.zero_()
        model.bytes.zero_()
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()  # waits for the snapshot
    handle.wait_durable()


def load_model(client, _mesh, job, step):
    """The names that are not bit for bit what was saved."""
    model, expected = Model(-1), Model(step).state_dict()
    state = {"model": model.state_dict(), "step": None}
    client.load(job, step, state)
    return [name for name, tensor in expected.items()
            if not torch.equal(state["model"][name], tensor)]


@pytest.mark.parametrize("changes_after", [False, True])
def test_invariant_3_a_state_larger_than_the_arena_is_saved_as_it_was_at_save(
        start_daemon, run, changes_after):
    daemon, job = start_daemon(arena=ARENA), new_name("job")
    (trainer,) = run(daemon, 1)
    trainer.run(save_model, job, 1, changes_after)
    assert trainer.run(load_model, job, 1) == []
    assert daemon.ckptctl("verify", job, 1).returncode == 0
    assert daemon.status()["arena_used_bytes"] == 0


def filled(seed):
    """8 MiB."""
    return torch.empty(2 << 20, dtype=torch.int32).random_(generator=torch.Generator().manual_seed(seed))


def peak_bytes():
    """The most memory that this process has had at a time, the arena's slabs included."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) << 10


def save_unfenced(client, _mesh, job, count, timeout_seconds):
    """``count`` times 8 MiB that no optimizer guards, and that change as soon as save() has
    returned, between a parameter in front and one behind. How much memory save() took."""
    before, after = (torch.nn.Parameter(torch.full((n << 20,), 0.5, dtype=dtype))
                     for n, dtype in [(2, torch.float64), (6, torch.bfloat16)])
    optimizer = torch.optim.SGD([before, after], lr=1.0)
    client.fence(optimizer)
    for parameter in (before, after):
        parameter.grad = torch.ones_like(parameter)
    unfenced = [filled(seed) for seed in range(count)]
    peak_before = peak_bytes()
    handle = client.save(job, 1, {"before": before, "unfenced": unfenced, "after": after},
                         timeout_seconds=timeout_seconds)
    grown = peak_bytes() - peak_before
    for tensor in unfenced:
        tensor.zero_()
    optimizer.step()
    handle.wait_durable()
    return grown


def load_unfenced(client, _mesh, job, count):
    """The names that are not bit for bit what was saved."""
    state = {"before": torch.zeros(2 << 20, dtype=torch.float64),
             "unfenced": [torch.zeros(2 << 20, dtype=torch.int32) for _ in range(count)],
             "after": torch.zeros(6 << 20, dtype=torch.bfloat16)}
    client.load(job, 1, state)
    wrong = [name for name in ("before", "after") if not bool((state[name] == 0.5).all())]
    return wrong + [seed for seed in range(count) if not torch.equal(state["unfenced"][seed], filled(seed))]


@pytest.mark.parametrize("count", [5, 40])
def test_invariant_3_what_no_optimizer_guards_may_change_after_save_and_costs_the_trainer_bounded_memory(
        start_daemon, run, count):
    # 40 MiB are kept in the trainer's memory until their windows come; with 320 MiB, save()
    # goes through the windows itself. Once all of it was kept, which ends large trainers.
    daemon, job = start_daemon(arena=ARENA), new_name("job")
    (trainer,) = run(daemon, 1)
    grown = trainer.run(save_unfenced, job, count, 600.0)
    assert grown < 160 << 20  # 64 MiB kept, the arena's 16, and a wide margin
    (other,) = run(daemon, 1)
    assert other.run(load_unfenced, job, count) == []
    assert daemon.ckptctl("verify", job, 1).returncode == 0


def test_a_save_that_goes_through_the_windows_ends_at_its_deadline_and_leaves_the_arena_free(
        start_daemon, run):
    daemon, job = start_daemon(arena=ARENA), new_name("job")
    (trainer,) = run(daemon, 1)
    assert daemon.ckptctl("pause").returncode == 0
    with pytest.raises(ckptd.DeadlineExceeded, match=f"saving step 1 of job {job}"):
        trainer.run(save_unfenced, job, 10, 2.0)
    assert daemon.ckptctl("resume").returncode == 0
    until(lambda: daemon.status()["arena_used_bytes"] == 0, "arena that is free again")
    trainer.run(save_unfenced, job, 10, 600.0)
    assert daemon.steps(job) == [1]


def test_ranks_whose_states_are_larger_than_the_arena_save_and_load_side_by_side(start_daemon, run):
    daemon = start_daemon(arena=ARENA)
    trainers = Trainers(trainer for _ in range(3) for trainer in run(daemon, 1))
    jobs = [new_name("job") for _ in trainers]
    for step in (1, 2):
        for trainer, job in zip(trainers, jobs, strict=True):
            trainer.start("run", save_model, job, step, True)
        assert trainers.answers() == [None] * len(jobs)
    for trainer, job in zip(trainers, jobs, strict=True):
        trainer.start("run", load_model, job, 2)
    assert trainers.answers() == [[]] * len(jobs)


def save_together(client, mesh, job, step):
    """Every rank has the model under a name of its own; two saves follow each other closely."""
    handles = []
    for offset in (0, 1):
        state = Model(step + offset).state_dict()
        named = {f"rank{mesh.get_rank()}.{name}": tensor for name, tensor in state.items()}
        handles.append(client.save(job, step + offset, named))
    for handle in handles:
        handle.wait_durable()


def load_together(client, mesh, job, step):
    """The other rank's tensors that are not bit for bit what it saved."""
    other = f"rank{1 - mesh.get_rank()}."
    state = {other + name: torch.zeros_like(t) for name, t in Model(-1).state_dict().items()}
    client.load(job, step, state, allow_extra=True)
    return [name for name, tensor in Model(step).state_dict().items()
            if not torch.equal(state[other + name], tensor)]


def test_saves_that_follow_each_other_closely_take_turns_in_the_arena(start_daemon, run):
    daemon, job = start_daemon(arena=ARENA), new_name("job")
    ranks = run(daemon, 2)
    assert ranks.each("run", save_together, job, 1) == [None] * 2
    for step in (1, 2):
        assert ranks.each("run", load_together, job, step) == [[]] * 2


def save_with_large_value(client, _mesh, job):
    client.save(job, 1, {"value": b"x" * 8_100_000, "large": torch.ones(3_000_000)})


def test_an_arena_too_small_for_windows_is_an_error_that_says_what_to_set(start_daemon, run):
    daemon, job = start_daemon(arena="8MiB"), new_name("job")
    (trainer,) = run(daemon, 1)
    with pytest.raises(ckptd.ResourceExhausted, match="arena has 8.0 MiB.*--arena-bytes="):
        trainer.run(save_with_large_value, job)
    assert daemon.steps(job) == []
