"""A stand-in for the job that compute is bought for: replace it by your own.

It trains a small model on synthetic data with PyTorch, on one process or under torchrun, and shows all that planrun
wants of a program: rank 0 prints one JSON line for each step of the whole job, everything else goes to stderr, and
the exit code is 0 only when all went well.
"""

import argparse
import json
import os
import time

import torch
from torch import nn

SEQUENCE, WIDTH, VOCABULARY, BATCH = 512, 512, 4096, 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=int(os.environ.get("PLANRUN_STEPS", "200")))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("PLANRUN_SECONDS", "0")))
    options = parser.parse_args()

    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if world > 1:
        torch.distributed.init_process_group("nccl" if cuda else "gloo")

    torch.manual_seed(rank)
    layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True)
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), nn.TransformerEncoder(layer, 4), nn.Linear(WIDTH, VOCABULARY))
    model = model.to(device)
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), device=device)

    begun, step, enough = time.monotonic(), 0, False
    while not enough:
        step += 1
        started = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        # All ranks must agree on the end, or the last ones wait for ever.
        enough = step >= options.steps and time.monotonic() - begun >= options.seconds
        if world > 1:
            vote = torch.tensor([float(enough)], device=device)
            torch.distributed.broadcast(vote, 0)
            enough = bool(vote.item())
        if cuda:
            torch.cuda.synchronize()
        if rank == 0:
            seconds = time.perf_counter() - started
            print(json.dumps({"step": step, "seconds": seconds, "tokens": BATCH * SEQUENCE * world, "world": world}), flush=True)
    if rank == 0:
        print(json.dumps({"metric": "loss", "value": loss.item(), "unit": "1"}), flush=True)
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
