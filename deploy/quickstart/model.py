"""A small GPT over bytes, and the three ways in which the quickstart spreads it over
processes. Sizes are chosen so that they don't divide by three."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


@dataclasses.dataclass(frozen=True)
class GptConfig:
    width: int = 352
    layers: int = 7
    head_width: int = 44
    context: int = 64
    vocabulary: int = 256  # bytes


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head_width = config.head_width
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, config.width, bias=False)
        self.value = nn.Linear(config.width, config.width, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        # -1: under tensor parallelism a process has only its share of the heads.
        query, key, value = (
            projection(x).view(batch, length, -1, self.head_width).transpose(1, 2)
            for projection in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.expand = nn.Linear(config.width, 4 * config.width)
        self.contract = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.contract(F.gelu(self.expand(self.feed_forward_norm(x))))


class Gpt(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.apply(self._initialize)

    @staticmethod
    def _initialize(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parameter_count(config):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Gpt(config).parameters())


def apply_fsdp(model, world_size):
    """Fully sharded data parallelism: every parameter cut along its first dimension."""
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("data",))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # gloo has no averaging reduction: sum, with the division done by FSDP.
            module.set_force_sum_reduction_for_comms(True)


def apply_tensor_parallelism(model, world_size):
    """Tensor parallelism: matrices cut along either dimension, the rest replicated."""
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("tensor",))
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.output": RowwiseParallel(),
            "expand": ColwiseParallel(),
            "contract": RowwiseParallel(),
        })
    parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Replicate())})


def build(config, layout, world_size, seed):
    """The model, alike in all processes, spread by `layout`: "fsdp" or "tensor"."""
    torch.manual_seed(seed)
    model = Gpt(config)
    if layout == "fsdp":
        apply_fsdp(model, world_size)
    else:
        apply_tensor_parallelism(model, world_size)
    return model
