# SPDX-License-Identifier: Apache-2.0
"""Train a small decoder three ways from the same seed: native, flag_gems alone, flag_gems with overrides.

    python examples/train_transformer.py [--output FOLDER]

Writes ``loss_curves.png`` and ``loss_curves.json`` and prints which of flag_gems' operators ran, how far each
loss curve is from native's, and why a run stopped, if one did. The model is written so that its layer norms
(of 3-D inputs), attention softmaxes and log-softmaxes reach flag_gems.

flag_gems 5.0.2 alone takes a layer norm's row count from ``input.shape[0]``. For these inputs its gradients
are wrong, and those of weight and bias are written beyond their ends. So each way has a process of its own,
and the model is trained twice: with layer norms that have weight and bias, as usual, and with ones that have
none, where flag_gems alone survives and its wrong gradients can be seen.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss

WAYS = {
    "native": "PyTorch",
    "upstream": "flag_gems alone",
    "overrides": "flag_gems with overrides",
}
# The comparison is about these, so flag_gems gets no others.
OPERATORS = [
    "layer_norm",
    "layer_norm_backward",
    "softmax",
    "softmax_backward",
    "log_softmax",
    "log_softmax_backward",
]
NORMS = {"affine": "LayerNorm with weight and bias", "plain": "LayerNorm without weight and bias"}
CHARACTERS = "\n0123456789+="


@dataclass(frozen=True)
class Size:
    batch: int
    context: int
    width: int
    heads: int
    layers: int
    learning_rate: float
    steps: int


# On a GPU no two runs round alike, and training multiplies the difference. As it is here, a change of all parameters
# by 1e-6 moves no loss of 300 steps by more than 0.13 % (H200, native); with PyTorch's own embeddings it was 10 %.
REAL = Size(batch=32, context=128, width=256, heads=4, layers=4, learning_rate=3e-4, steps=300)
TINY = Size(batch=2, context=16, width=16, heads=1, layers=1, learning_rate=3e-3, steps=30)


def sums(count: int) -> Tensor:
    """The text to learn: lines such as ``12+7=19``, as indices into ``CHARACTERS``."""
    numbers = random.Random(0)
    pairs = ((numbers.randrange(30), numbers.randrange(30)) for _ in range(count))
    text = "".join(f"{a}+{b}={a + b}\n" for a, b in pairs)
    return torch.tensor([CHARACTERS.index(character) for character in text])


def batches(text: Tensor, size: Size) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of (batch, context) inputs and the characters that follow them."""
    generator = torch.Generator().manual_seed(0)
    while True:
        starts = torch.randint(len(text) - size.context, (size.batch, 1), generator=generator)
        at = starts + torch.arange(size.context)
        yield text[at], text[at + 1]


class Block(nn.Module):
    def __init__(self, size: Size, affine: bool) -> None:
        super().__init__()
        self.heads = size.heads
        self.attention_norm = nn.LayerNorm(size.width, elementwise_affine=affine)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.projection = nn.Linear(size.width, size.width)
        self.mlp_norm = nn.LayerNorm(size.width, elementwise_affine=affine)
        self.mlp = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width)
        )
        future = torch.ones(size.context, size.context, dtype=torch.bool).triu(1)
        self.register_buffer("future", future)

    def attention(self, x: Tensor) -> Tensor:
        # Spelled out: a fused attention kernel would not call softmax.
        batch, context, width = x.shape
        q, k, v = self.qkv(x).view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        weights = torch.softmax(scores.masked_fill(self.future, -math.inf), -1)
        return self.projection((weights @ v).transpose(1, 2).reshape(batch, context, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    def __init__(self, size: Size, affine: bool) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), size.width)
        nn.init.normal_(self.characters.weight, std=0.02)
        self.positions = nn.Parameter(0.02 * torch.randn(size.context, size.width))
        self.blocks = nn.Sequential(*(Block(size, affine) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width, elementwise_affine=affine)
        self.head = nn.Linear(size.width, len(CHARACTERS))

    def forward(self, text: Tensor) -> Tensor:
        """Logarithms of the next character's probabilities, (batch, context, characters)."""
        x = self.blocks(self.characters(text) + self.positions)
        return torch.log_softmax(self.head(self.norm(x)), -1)


def train(size: Size, affine: bool, device: str) -> Iterator[float]:
    """The loss of each step."""
    torch.manual_seed(0)
    model = Decoder(size, affine).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.learning_rate)
    for (text, following), _ in zip(batches(sums(2000), size), range(size.steps), strict=False):
        loss = nll_loss(model(text.to(device)).flatten(0, 1), following.to(device).flatten())
        yield loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def run_one_way(way: str, norm: str, size: Size, log: str) -> None:
    """In its own process: train, print each step's loss as JSON, let flag_gems log operators to ``log``."""
    with ExitStack() as stack:
        if way != "native":
            if not torch.cuda.is_available():
                from flag_gems_overrides import interpreter

                interpreter.activate()
                stack.enter_context(interpreter.check_bounds())
            import flag_gems

            import flag_gems_overrides
            from flag_gems_overrides.registration import compat, upstream

            if way == "overrides":
                stack.enter_context(flag_gems_overrides.use_overrides())
            else:
                # Without it flag_gems 5.0.2 crashes on Triton 3.7, before it could show its gradients.
                compat.apply()
            stack.enter_context(upstream.use_gems(flag_gems, OPERATORS, record=True, path=log))
        for loss in train(size, norm == "affine", "cuda" if torch.cuda.is_available() else "cpu"):
            print(json.dumps(loss), flush=True)


@dataclass
class Run:
    """What one way did."""

    losses: list[float]
    operators: dict[str, int]
    stopped: str

    def distance(self, other: Run) -> float | None:
        """The largest relative distance of two curves; None if they are not of one length, or not finite."""
        if len(self.losses) != len(other.losses) or not all(map(math.isfinite, self.losses)):
            return None
        return max(abs(a - b) / abs(b) for a, b in zip(self.losses, other.losses, strict=True))


def start(way: str, norm: str, size: Size) -> Run:
    """Run this file once more, in a process that trains one way, and collect what it says."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "operators.log")
        options = {"--steps": size.steps, "--way": way, "--norm": norm, "--log": log}
        command = [sys.executable, __file__, *(str(word) for option in options.items() for word in option)]
        process = subprocess.run(command, capture_output=True, text=True)
        lines = log.read_text() if log.exists() else ""
    # "[DEBUG] flag_gems.ops.layernorm.layer_norm_backward: GEMS LAYERNORM BACKWARD"
    operators = dict(Counter(re.findall(r"\.(\w+): GEMS", lines)))
    stopped = ""
    if process.returncode:
        errors = re.findall(r"^\S*(?:Error|Exception)\b.*$", process.stderr, re.MULTILINE)
        stopped = errors[-1] if errors else f"exit status {process.returncode}"
    return Run([json.loads(line) for line in process.stdout.splitlines()], operators, stopped)


def plot(runs: dict[str, dict[str, Run]], path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    styles: dict[str, dict[str, Any]] = {
        "native": {"color": "0.2", "linewidth": 4},
        "upstream": {"color": "tab:red", "linewidth": 1.5},
        "overrides": {"color": "tab:cyan", "linewidth": 1.5},
    }
    figure, panels = plt.subplots(1, len(runs), figsize=(11, 4), sharey=True, layout="constrained")
    for axes, (norm, ways) in zip(panels, runs.items(), strict=True):
        for way, run in ways.items():
            label = WAYS[way]
            finite = [loss for loss in run.losses if math.isfinite(loss)]
            if run.stopped or len(finite) < len(run.losses):
                label += f": {'stopped' if run.stopped else 'NaN'} after step {len(finite)}"
                axes.plot(range(len(finite))[-1:], finite[-1:], "x", color=styles[way]["color"], markersize=10)
            axes.plot(finite, label=label, **styles[way])
        axes.set(xlabel="step", title=NORMS[norm])
        axes.legend()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("loss")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def describe(way: str, run: Run, native: Run) -> None:
    some = run.losses[:: max(1, len(run.losses) // 10)]
    print(f"  {WAYS[way]}: {' '.join(f'{loss:.3f}' for loss in some)}")
    if run.stopped:
        print(f"    stopped after step {len(run.losses)}: {run.stopped}")
    if way != "native":
        distance = run.distance(native)
        print(f"    from PyTorch's curve: {'no distance' if distance is None else f'{distance:.2g}'}")
        print(f"    ran through flag_gems: {run.operators}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small decoder three ways, compare the loss curves.")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for loss_curves.png and .json")
    parser.add_argument("--steps", type=int, help="training steps")
    for option in ("--way", "--norm", "--log"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    options = parser.parse_args()

    gpu = torch.cuda.is_available()
    size = REAL if gpu else TINY
    if options.steps:
        size = replace(size, steps=options.steps)
    if options.way:
        run_one_way(options.way, options.norm, size, options.log)
        return

    device = torch.cuda.get_device_name() if gpu else "Triton's interpreter"
    versions = {name: version(name) for name in ("torch", "triton", "flag_gems")}
    print(f"{device}, {', '.join(f'{name} {number}' for name, number in versions.items())}\n{size}")
    with ThreadPoolExecutor(len(NORMS) * len(WAYS) if gpu else 1) as pool:
        started = {norm: {way: pool.submit(start, way, norm, size) for way in WAYS} for norm in NORMS}
        runs = {norm: {way: run.result() for way, run in ways.items()} for norm, ways in started.items()}
    for norm, ways in runs.items():
        print(f"\n{NORMS[norm]}")
        for way, run in ways.items():
            describe(way, run, ways["native"])

    options.output.mkdir(parents=True, exist_ok=True)
    title = f"The same decoder from the same seed, {device}, flag_gems {versions['flag_gems']}"
    plot(runs, options.output / "loss_curves.png", title)
    record = {
        "command": f"python examples/train_transformer.py --steps {size.steps}",
        "device": device,
        "python": platform.python_version(),
        **versions,
        "size": asdict(size),
        "runs": {
            norm: {way: {"distance": run.distance(ways["native"]), **asdict(run)} for way, run in ways.items()}
            for norm, ways in runs.items()
        },
    }
    # JSON has no NaN.
    text = json.dumps(record, indent=1).replace("NaN", "null")
    (options.output / "loss_curves.json").write_text(re.sub(r"\n {5,}|\n {4}(?=\])", " ", text) + "\n")


if __name__ == "__main__":
    main()
