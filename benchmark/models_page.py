# SPDX-License-Identifier: Apache-2.0
"""docs/models.md and its picture, from the record of the scoreboard.

python benchmark/models_page.py benchmark/records/nvidia-h200/models.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[1] / "docs"
INTRODUCTION = """\
# Whole models

A step of each model under bfloat16 autocast, with nothing of flag_gems enabled but the overrides, against PyTorch:
6 layers, 768 wide, 12 heads, 512 tokens or 224 x 224 pixels, random weights, no dropout; ResNet as its configuration
has it. Native time over time with the overrides, so that above 1 is faster, with its 95 % interval; both in one
process in the order A B B A.

The losses of the first 30 steps agree where they are no further from native's than the bound: three times what native's
own losses move when all weights are changed by one part in a million, at least 0.1 %.

`benchmark/test_models_perf.py` measures it, `benchmark/models_page.py` writes this page.
"""
ENABLED = """\
The bound is three times what native's own losses move when all weights are changed so or cuBLASLt takes the matrix
products, whichever is more, at least 1 %.
"""


def main() -> None:
    record = json.loads(Path(sys.argv[1]).read_text())
    rows = sorted((row for row in record["rows"] if "ratio" in row), key=lambda row: row["case"])
    enabled = [row for row in record["rows"] if "enable" in row["losses"]]
    (DOCS / "models.md").write_text(page(record, rows, enabled))
    picture(rows)


def page(record: dict[str, Any], rows: list[dict[str, Any]], enabled: list[dict[str, Any]]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        INTRODUCTION,
        f"{record['device']}; {versions}.\n",
        "![Native time over time with the overrides](models.svg)\n",
        "| model | native, ms | with overrides, ms | ratio | interval | difference of the losses | bound |",
        "|:---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        ratio, low, high = row["ratio"]
        apart = _apart(row["losses"]["overrides"], row["losses"]["native"])
        lines.append(
            f"| {row['case']} | {row['native_ms']:.2f} | {row['overrides_ms']:.2f} | {ratio:.3f} "
            f"| {low:.3f}&nbsp;to&nbsp;{high:.3f} | {apart:.2%} | {row['bound']:.2%} |"
        )
    if enabled:
        lines += [
            "\n## Training under `enable()`\n",
            ENABLED,
            "| model | difference of the losses | bound |",
            "|:---|---:|---:|",
        ]
        for row in enabled:
            apart = _apart(row["losses"]["enable"], row["losses"]["native"])
            lines.append(f"| {row['case'].split()[0]} | {apart:.2%} | {row['bound']:.2%} |")
    return "\n".join(lines) + "\n"


def _apart(some: list[float], others: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(some, others, strict=True))


def picture(rows: list[dict[str, Any]]) -> None:
    figure, axes = plt.subplots(figsize=(8, 0.32 * len(rows) + 1), layout="constrained")
    for height, row in enumerate(reversed(rows)):
        ratio, low, high = row["ratio"]
        axes.plot([low, high], [height, height], color="C0", linewidth=2)
        axes.plot(ratio, height, "o", color="C0" if low >= 1 else "C1" if high < 1 else "0.5")
    axes.axvline(1, color="0.7", linewidth=1)
    axes.set_yticks(range(len(rows)), [row["case"] for row in reversed(rows)])
    axes.set_xlabel("native time over time with the overrides")
    plt.rcParams["svg.hashsalt"] = "models"
    figure.savefig(DOCS / "models.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
