"""Errors that list thousands of names arrive whole: gRPC's own limit for a message is 8 KB."""

import uuid

import pytest
import torch

import ckptd

NAMES = [f"model.layers.{i}." + "very_long_module_name." * 8 + "weight" for i in range(2000)]


@pytest.fixture
def client(daemon):
    with ckptd.Client(str(daemon.socket_dir), rank=0, world_size=1, run_token=uuid.uuid4().hex) as client:
        yield client


def test_an_error_names_each_of_two_thousand_missing_tensors(client):
    job = "job-" + uuid.uuid4().hex
    client.save(job, 1, {"w": torch.ones(3)}).wait_durable()
    wanted = {"w": torch.zeros(3)} | {name: torch.zeros(1) for name in NAMES}
    with pytest.raises(ckptd.FailedPrecondition) as error:
        client.load(job, 1, wanted)
    message = str(error.value)
    assert "2000 missing" in message
    assert [name for name in NAMES if name not in message] == []


def test_an_error_above_the_bound_says_how_many_more_there_are(client):
    job = "job-" + uuid.uuid4().hex
    client.save(job, 1, {"w": torch.ones(3)}).wait_durable()
    wanted = {"w": torch.zeros(3)} | {name + "x" * 800: torch.zeros(1) for name in NAMES}
    with pytest.raises(ckptd.FailedPrecondition) as error:
        client.load(job, 1, wanted)
    message = str(error.value)
    assert "2000 missing" in message
    assert " more" in message and "... and " in message
    assert len(message) < 1 << 20
