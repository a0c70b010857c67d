"""The reference GPT in PyTorch: the same model, layout and optimiser as src/workload.

Shared by golden_gpt.py and compare_pytorch.py; not what planrun runs on GPU hosts.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY = 256


class Attention(nn.Module):
    def __init__(self, width, heads, sequence):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        mask = torch.tril(torch.ones(sequence, sequence, dtype=torch.bool))
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(c, dim=2)
        )
        fused = getattr(F, "scaled_dot_product_attention", None)
        if fused is not None:
            y = fused(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(c // self.heads))
            y = F.softmax(scores.masked_fill(~self.mask[:t, :t], float("-inf")), dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads, sequence):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, sequence)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Modules are declared in the order of the flat parameter vector in src/workload/layout.rs."""

    def __init__(self, layers, heads, width, sequence):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, width)
        self.wpe = nn.Embedding(sequence, width)
        self.h = nn.ModuleList(Block(width, heads, sequence) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, inputs, targets):
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        x = self.wte(inputs) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        # The head is tied to the token embedding.
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))
