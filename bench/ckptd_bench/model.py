"""The model whose training state is saved: a transformer block with a mixture of experts.

A step uses one expert, as mixtures do. So the state can be of any size while a step takes
about a second: with all of 4 GiB in use, moving parameters over gloo alone would take several.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

GIB = 1 << 30
STATE_BYTES_PER_PARAMETER = 12  # fp32: itself and AdamW's two moments
VOCABULARY = 256


@dataclasses.dataclass(frozen=True)
class Sizes:
    width: int
    hidden: int    # of an expert
    experts: int
    head_width: int = 64

    @property
    def expert_parameters(self):
        return 2 * self.width * self.hidden

    @property
    def parameters(self):
        attention_and_rest = 4 * self.width ** 2 + 2 * VOCABULARY * self.width + 3 * self.width
        return attention_and_rest + self.experts * self.expert_parameters

    @property
    def state_bytes(self):
        return self.parameters * STATE_BYTES_PER_PARAMETER


def sizes_for(state_gib):
    """The smallest number of experts that makes a state at least this large. Pure.

    Width and hidden size keep the ratio 2048 : 5632 of common models.
    """
    width = 2048 if state_gib >= 2 else 1024 if state_gib >= 0.5 else 512
    sizes = Sizes(width, width * 11 // 4, 1)
    while sizes.state_bytes < state_gib * GIB:
        sizes = dataclasses.replace(sizes, experts=sizes.experts + 1)
    return sizes


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.head_width = sizes.head_width
        self.query, self.key, self.value, self.output = (
            nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            projection(x).view(batch, length, -1, self.head_width).transpose(1, 2)
            for projection in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, width))


class Expert(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.expand = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.contract = nn.Linear(sizes.hidden, sizes.width, bias=False)

    def forward(self, x):
        return self.contract(F.gelu(self.expand(x)))


class Mixture(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, sizes.width)
        self.attention_norm, self.expert_norm, self.norm = (
            nn.RMSNorm(sizes.width) for _ in range(3))
        self.attention = Attention(sizes)
        self.experts = nn.ModuleList(Expert(sizes) for _ in range(sizes.experts))
        self.head = nn.Linear(sizes.width, VOCABULARY, bias=False)

    def forward(self, tokens, expert):
        x = self.tokens(tokens)
        x = x + self.attention(self.attention_norm(x))
        x = x + self.experts[expert](self.expert_norm(x))
        return self.head(self.norm(x))


def parameter_shapes(sizes):
    """{name: shape}, without memory for them."""
    with torch.device("meta"):
        return {name: tuple(parameter.shape)
                for name, parameter in Mixture(sizes).named_parameters()}


def build_fsdp2(sizes, world_size):
    """The model, its parameters cut along their first dimension over all ranks."""
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("data",))
    with torch.device("meta"):
        model = Mixture(sizes)
    for part in [model.attention, *model.experts]:
        fully_shard(part, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # gloo has no averaging reduction: sum, with the division done by FSDP.
            module.set_force_sum_reduction_for_comms(True)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.fill_(1.0)
            else:
                parameter.uniform_(-0.03, 0.03)
    return model
