#!/usr/bin/env python3
"""Compares planrun's CPU training with PyTorch's: tokens/s of both on the same model, in turn.

Run from the repository's root, on an otherwise idle machine:

  cargo build --release
  /usr/bin/python3 scripts/compare_pytorch.py [--threads 1] [--rounds 5] [--steps 40]

Installs nothing. Needs PyTorch on the CPU; on Debian 12:
  apt-get install --no-install-recommends python3-torch libopenblas0-pthread

Each round runs `planrun probe reference`, then PyTorch, each pinned to the same cores, each in a process of its own;
the first quarter of the steps is warm-up. A round's ratio is planrun's tokens/s by PyTorch's, from
median step times; the last line is the median ratio with its range.

An OpenBLAS older than the CPU falls back on kernels for SSE3, a fifth of the speed; unless
OPENBLAS_CORETYPE is set, the script names a kernel that fits the CPU's flags.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PROGRAM = os.path.join(ROOT, "target", "release", "planrun")
CORPUS = os.path.join(ROOT, "src", "workload", "corpus.txt")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--program", default=PROGRAM, help="the planrun to run")
    parser.add_argument("--only-pytorch", action="store_true", help="one PyTorch run, its step times as JSON")
    return parser.parse_args()


def pytorch_steps(options):
    """Trains in this process and returns the seconds of every step."""
    try:
        import torch
    except ImportError:
        sys.exit(
            "PyTorch is missing; on Debian 12: "
            "apt-get install --no-install-recommends python3-torch libopenblas0-pthread"
        )
    from gpt import Gpt

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Gpt(options.layers, options.heads, options.width, options.sequence)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with open(CORPUS, "rb") as file:
        text = torch.tensor(list(file.read()), dtype=torch.long)
    seconds = []
    for _ in range(options.steps):
        began = time.perf_counter()
        starts = torch.randint(len(text) - options.sequence - 1, (options.batch,))
        rows = [text[start : start + options.sequence + 1] for start in starts.tolist()]
        tokens = torch.stack(rows)
        optimiser.zero_grad(set_to_none=True)
        loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        optimiser.step()
        seconds.append(time.perf_counter() - began)
    print(f"PyTorch {torch.__version__}, loss {loss.item():.4f}", file=sys.stderr)
    return seconds


def planrun_steps(options):
    model = {name: getattr(options, name) for name in ("layers", "heads", "width", "sequence", "batch")}
    spec = {"model": model, "cores_per_rank": options.threads, "steps": options.steps}
    command = [options.program, "probe", "reference", "--json", "--options", json.dumps(spec)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [line["seconds"] for line in lines if "step" in line]


def tokens_per_second(options, seconds):
    steady = seconds[len(seconds) // 4 :]
    return options.batch * options.sequence / statistics.median(steady)


def openblas_core():
    """The OpenBLAS kernel for this CPU, by its flags."""
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    return "SKYLAKEX" if "avx512f" in flags else "HASWELL" if "avx2" in flags else None


def main():
    options = arguments()
    if options.only_pytorch:
        print(json.dumps(pytorch_steps(options)))
        return
    if not os.path.exists(options.program):
        sys.exit("planrun's side is missing: cargo build --release")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < options.threads:
        sys.exit(f"{options.threads} threads need as many cores; this process may use {len(cores)}")
    os.sched_setaffinity(0, cores[: options.threads])
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), OPENBLAS_NUM_THREADS=str(options.threads))
    core = openblas_core()
    if core:
        environment.setdefault("OPENBLAS_CORETYPE", core)
    again = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--only-pytorch"]
    ratios = []
    for round_number in range(1, options.rounds + 1):
        ours = tokens_per_second(options, planrun_steps(options))
        done = subprocess.run(again, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        theirs = tokens_per_second(options, json.loads(done.stdout.splitlines()[-1]))
        ratios.append(ours / theirs)
        print(f"round {round_number}: planrun {ours:.0f} tokens/s, PyTorch {theirs:.0f} tokens/s, ratio {ratios[-1]:.3f}")
    print(
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), "
        f"{options.threads} thread(s), {options.rounds} rounds of {options.steps} steps"
    )


if __name__ == "__main__":
    main()
