"""Compile the fused kernel for an H100 or H200, without a GPU; print its resources as JSON."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from aptool.scoring.kernels.attentive_fused import tile_of
from aptool.scoring.kernels.attentive_triton import join

TYPES = {
    "projected": "*{}",
    "states": "*fp32",
    "question_offsets": "*i64",
    "answers": "*{}",
    "blocks": "*i32",
    "pair_question": "*i32",
    "pair_position": "*i32",
    "scores": "*fp32",
    "sharpness": "fp32",
    "c": "i32",
}
TYPES_OF_ANSWERS = {"bf16": torch.bfloat16, "fp32": torch.float32}
TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def compiled(slots, tokens, dtype):
    kind = TYPES_OF_ANSWERS[dtype]
    options = tile_of(slots, tokens, kind).options(kind)
    launch = {key: options.pop(key) for key in ("num_warps", "num_stages", "enable_fp_fusion")}
    names = join.arg_names
    source = ASTSource(
        fn=join,
        signature={name: TYPES.get(name, "constexpr").format(dtype) for name in names},
        constexprs={(names.index(name),): value for name, value in options.items()},
        attrs={
            (names.index(name),): [["tt.divisibility", 16]]
            for name in ("projected", "states", "answers", "c", "scores")
        },
    )
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=launch)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([TOOL, what, file.name], capture_output=True, text=True, check=True).stdout
            for what in ("-res-usage", "-sass")
        )
    registers, stack, local = (
        int(re.search(rf"\b{name}:(\d+)", usage)[1]) for name in ("REG", "STACK", "LOCAL")
    )
    return {
        "registers": registers,
        "spilled": stack + local + len(re.findall(r"\b(?:LDL|STL)\b", code)),
        "tensor_core_instructions": len(re.findall(r"\b(?:HGMMA|HMMA)\b", code)),
        "shared_bytes": made.metadata.shared,
    }


if __name__ == "__main__":
    # The most common tile and the largest tiles, or all.
    tiles = [(8, 128, "bf16"), (8, 128, "fp32"), (8, 256, "fp32")]
    if sys.argv[1:] == ["all"]:
        every = [(1 << slots, 1 << tokens) for slots in range(3, 7) for tokens in range(4, 10)]
        kinds = [(*tile, dtype) for tile in every for dtype in TYPES_OF_ANSWERS]
        tiles = [(s, t, dtype) for s, t, dtype in kinds if tile_of(s, t, TYPES_OF_ANSWERS[dtype])]
    json.dump({f"{s}x{t} {dtype}": compiled(s, t, dtype) for s, t, dtype in tiles}, sys.stdout, indent=2)
