"""One client used by two threads at once."""

import uuid

import torch

from rank_threads import connect, connect_ranks, outcomes

ELEMENTS = 1 << 19  # 2 MiB of fp32: planned, not compared by hash
STEPS = range(1, 16)


def new_job():
    return "job-" + uuid.uuid4().hex


def train_and_save(client, job, layers):
    """Saves at every step, each of another content; returns what each step held."""
    parameters = {f"p{i}": torch.nn.Parameter(torch.randn(ELEMENTS)) for i in range(layers)}
    optimizer = torch.optim.SGD(parameters.values(), lr=1.0)
    client.fence(optimizer)
    held = {}
    for step in STEPS:
        held[step] = {name: p.detach().clone() for name, p in parameters.items()}
        handle = client.save(job, step, {**parameters, "step": step})
        for parameter in parameters.values():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    handle.wait_durable()
    return held


def load_and_compare(client, job, step, held):
    state = {name: torch.zeros_like(tensor) for name, tensor in held.items()} | {"step": 0}
    result = client.load(job, step, state)
    return result.step == state["step"] == step and \
        all(torch.equal(state[name], held[name]) for name in held)


def test_two_threads_save_two_jobs_and_each_step_holds_what_its_thread_had(daemon):
    jobs = new_job(), new_job()
    with connect(daemon) as client:
        held = outcomes(lambda: train_and_save(client, jobs[0], layers=1),
                        lambda: train_and_save(client, jobs[1], layers=2))
        for job, steps in zip(jobs, held, strict=True):
            assert isinstance(steps, dict), steps
            assert daemon.steps(job) == list(STEPS)
            assert [step for step in STEPS if not load_and_compare(client, job, step, steps[step])] == []


def test_one_thread_loads_what_was_saved_while_another_saves(daemon):
    job = new_job()
    with connect(daemon) as client:
        first = {"p0": torch.randn(ELEMENTS)}
        client.save(job, 1000, first | {"step": 1000}).wait_durable()

        def load_often():
            return [step for step in STEPS if not load_and_compare(client, job, 1000, first)]

        held, differ = outcomes(lambda: train_and_save(client, job, layers=1), load_often)
        assert isinstance(held, dict), held
        assert differ == []
        assert daemon.steps(job) == [*STEPS, 1000]
        assert [step for step in STEPS if not load_and_compare(client, job, step, held[step])] == []


def test_threads_of_two_ranks_may_begin_with_two_jobs_in_opposite_order(daemon):
    jobs = new_job(), new_job()
    ranks = connect_ranks(daemon, 2)

    def save(rank, job):
        ranks[rank].save(job, 1, {"v": rank}).wait_durable()

    # Each rank waits for the other in the job that it began with.
    results = outcomes(lambda: save(0, jobs[0]), lambda: save(1, jobs[1]),
                       lambda: save(0, jobs[1]), lambda: save(1, jobs[0]))
    assert results == [None] * 4
    for client in ranks:
        client.close()
