#!/usr/bin/env python3
"""Writes fixtures/workload/golden_gpt.json: what PyTorch computes for a tiny reference GPT.

Run from the repository's root: /usr/bin/python3 scripts/golden_gpt.py
Needs PyTorch on the CPU; on Debian 12: apt-get install --no-install-recommends python3-torch

Everything is computed in float64 from weights rounded to float32, so the fixture is the right
answer and the distance of the Rust code from it is rounding. Weights and tokens follow formulas
that both sides share:

  weight[k] = 0.5 sin(0.1 k^2 + k), k counted over the flat vector, plus 1 for norm weights
  token[j]  = (37 j^2 + 11 j + 5) mod 256, j counted over (B, T + 1); targets are one further on

Large vectors are kept as their norm, a few elements, and a dot product with cos(0.61 k + 0.3),
which every element takes part in. The sequence is longer than one block of attention rows (64).

The bias of the keys shifts all scores of a row alike, so its gradient is 0 and AdamW, which
divides by the gradient's own size, turns rounding into steps. The summary of the updated
attention bias therefore leaves the keys out.
"""

import json
import math
import os
import sys

try:
    import torch
except ImportError:
    sys.exit("PyTorch is missing; on Debian 12: apt-get install --no-install-recommends python3-torch")

sys.dont_write_bytecode = True
from gpt import Gpt  # noqa: E402

CONFIG = {"layers": 2, "heads": 2, "width": 8, "sequence": 70, "batch": 3, "seed": 1, "learning_rate": 0.01}
STEPS = 3
PATH = os.path.join(os.path.dirname(__file__), "..", "fixtures", "workload", "golden_gpt.json")


def summary(values):
    values = values.detach().reshape(-1)
    k = torch.arange(len(values), dtype=torch.float64)
    return {
        "norm": values.norm().item(),
        "dot": torch.dot(values, torch.cos(0.61 * k + 0.3)).item(),
        "first": values[:4].tolist(),
        "last": values[-4:].tolist(),
    }


def without_keys(name, values):
    if name.endswith("c_attn.bias"):
        queries, _, rest = values.chunk(3)
        return torch.cat((queries, rest))
    return values


def main():
    torch.set_default_dtype(torch.float64)
    model = Gpt(CONFIG["layers"], CONFIG["heads"], CONFIG["width"], CONFIG["sequence"])
    start = 0
    for name, parameter in model.named_parameters():
        k = torch.arange(start, start + parameter.numel(), dtype=torch.float64)
        start += parameter.numel()
        values = 0.5 * torch.sin(0.1 * k * k + k)
        if "ln_" in name and name.endswith("weight"):
            values = values + 1.0
        parameter.data.copy_(values.to(torch.float32).to(torch.float64).view_as(parameter))

    b, t = CONFIG["batch"], CONFIG["sequence"]
    j = torch.arange(b * (t + 1))
    tokens = ((37 * j * j + 11 * j + 5) % 256).view(b, t + 1)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    optimiser = torch.optim.AdamW(
        model.parameters(), lr=CONFIG["learning_rate"], betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )
    losses, gradients = [], None
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = model(inputs, targets)
        loss.backward()
        losses.append(loss.item())
        if gradients is None:
            gradients = {name: summary(p.grad) for name, p in model.named_parameters()}
        optimiser.step()

    tensors = [
        {"name": name, "shape": list(p.shape), "gradient": gradients[name], "after": summary(without_keys(name, p))}
        for name, p in model.named_parameters()
    ]
    golden = {
        "made_by": "scripts/golden_gpt.py, PyTorch " + torch.__version__ + ", float64",
        "config": CONFIG,
        "parameters": start,
        "steps": STEPS,
        "losses": losses,
        "tensors": tensors,
    }
    assert all(math.isfinite(loss) for loss in losses)
    with open(PATH, "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")
    print(f"wrote {os.path.normpath(PATH)}: {start} parameters, losses {losses}")


if __name__ == "__main__":
    main()
