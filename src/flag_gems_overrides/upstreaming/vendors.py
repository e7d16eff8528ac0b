# SPDX-License-Identifier: Apache-2.0
"""What other vendors have of their own beside the generic files, and which of the defects that has."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator, Mapping
from pathlib import Path

BACKENDS = "src/flag_gems/runtime/backend"

# By module, then vendor, the ids of defects: read at upstream's ed2508bcb, not run. What is not here was not seen, or
# not looked for.
_READ: Mapping[str, Mapping[str, str]] = {
    "layernorm": {
        "ascend": "L4",
        "cambricon": "L1 L4",
        "kunlunxin": "L1 L2 L4 L5",
        "metax": "L1 L2 L4 L5",
        "sunrise": "L1 L2 L4 L5",
    },
    "softmax": {"ascend": "S2 S3", "cambricon": "S1 S2 S3", "kunlunxin": "S3", "spacemit": "S3", "sunrise": "S1 S2 S3"},
    "prod": {"cambricon": "P1 P2", "kunlunxin": "P1 P2 P7", "metax": "P1 P2 P7", "mthreads": "P1 P2 P7"},
    "max": {
        "ascend": "X1 X2 X3",
        "cambricon": "X1 X2",
        "kunlunxin": "X1 X2",
        "mthreads": "X1 X2",
        "tsingmicro": "X1 X2 X3",
    },
    "amax": {
        "ascend": "X1 X5",
        "cambricon": "X1 X5",
        "kunlunxin": "X1 X5",
        "metax": "X1 X5",
        "mthreads": "X1",
        "sunrise": "X1 X5",
    },
    "min": dict.fromkeys(("arm", "ascend", "cambricon", "kunlunxin", "metax", "mthreads"), "N1 N2"),
    "amin": {"kunlunxin": "M1 M3", "sunrise": "M1"},
    "argmax": {
        **dict.fromkeys(("arm", "ascend", "cambricon", "kunlunxin", "tsingmicro"), "A1 A2"),
        "spacemit": "A1",
    },
    "argmin": {**dict.fromkeys(("ascend", "kunlunxin", "mthreads", "tsingmicro"), "A1 A2"), "spacemit": "A1"},
    "sum": {"cambricon": "U1 U2 U4 U6", "kunlunxin": "U1 U2 U4 U5 U6", "sunrise": "U1 U2 U4 U5 U6"},
    "mean": {
        "ascend": "E2 E3",
        "cambricon": "E2",
        "kunlunxin": "E2",
        "spacemit": "E1 E2 E3",
        "sunrise": "E1 E2 E3",
        "tsingmicro": "E2 E3",
    },
    "var": {"cambricon": "W1 W2", "iluvatar": "W2"},
    "var_mean": {"ascend": "J1 J2", "cambricon": "J1", "kunlunxin": "J1 J2"},
    "nllloss": {"kunlunxin": "NL2 NL3 NL4 NL5 NL6"},
    "any": dict.fromkeys(("arm", "ascend", "cambricon", "hygon", "mthreads"), "Y1"),
    "all": dict.fromkeys(("arm", "ascend", "cambricon", "hygon", "mthreads", "tsingmicro"), "Z1"),
    "count_nonzero": dict.fromkeys(("ascend", "cambricon", "kunlunxin", "sunrise", "tsingmicro"), "K2"),
    "aminmax": dict.fromkeys(("kunlunxin", "sunrise"), "AM1 AM2 AM3"),
    "vector_norm": {"ascend": "V2 V3 V4 V5", "cambricon": "V3", "kunlunxin": "V1 V2 V3 V4"},
    "groupnorm": dict.fromkeys(("ascend", "kunlunxin", "metax"), "G1"),
    "nansum": dict.fromkeys(("ascend", "hygon", "metax"), "H1 H2 H3 H4"),
    "logsumexp": dict.fromkeys(("cambricon", "kunlunxin"), "LS1 LS2 LS3"),
    "cudnn_batch_norm_backward": {"thead": "CB1"},
    "rms_norm": dict.fromkeys(("ascend", "cambricon", "kunlunxin", "sunrise", "tsingmicro"), "R2"),
}


def copies(tree: Path, module: str) -> list[str]:
    """The vendors with a file of this name in their ops."""
    found = (tree / BACKENDS).glob(f"_*/ops/{module}.py")
    return sorted(path.parts[-3].removeprefix("_") for path in found if path.parts[-3] != "_nvidia")


def alike(module: str) -> Mapping[str, str]:
    """Which of this module's defects the vendors' own files have too: their titles."""
    from flag_gems_overrides.upstreaming.defects import DEFECTS  # imports PyTorch

    read = _READ.get(module, {})
    return {vendor: "; ".join(DEFECTS[id].title for id in ids.split()) for vendor, ids in read.items()}


def dangling(tree: Path) -> Iterator[str]:
    """The names that vendors' files import from a generic file that has them no more."""
    for path in sorted((tree / BACKENDS).glob("_*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module or not node.module.startswith("flag_gems.ops."):
                continue
            source = tree / "src" / f"{node.module.replace('.', '/')}.py"
            if source.exists():
                # Its names at the top level, imported ones among them.
                there = set(symtable.symtable(source.read_text(), str(source), "exec").get_identifiers())
                for name in sorted({alias.name for alias in node.names} - there):
                    yield f"{path.relative_to(tree)}: imports {name} from {node.module}, which does not have it"


# What a file that all vendors run has no business with.
_NVIDIA = re.compile(
    r"cuda|nvidia|hopper|ampere|capability|ptx|inline_asm|launch_cooperative_grid|gdc_|L2_cache_size", re.IGNORECASE
)
_ELSEWHERE = ("tests/", "benchmark/", f"{BACKENDS}/_nvidia/")


def named(diff: str) -> Iterator[str]:
    """The lines that a diff adds to a file outside of ``_nvidia`` and that speak of NVIDIA's devices."""
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif line.startswith("+") and not path.startswith(_ELSEWHERE) and _NVIDIA.search(line):
            yield f"{path}: speaks of NVIDIA, and all vendors run it: {line[1:].strip()}"
