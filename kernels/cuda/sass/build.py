"""Compiles the attention kernels of a source tree to cubins, and asks their header for its constants."""
import json
import os
import pathlib
import shutil
import subprocess

from disassembly import SassError

KERNELS = ("split_attention", "prefill_attention", "merge_attention", "attention_plan")
ARCHITECTURE = "90a"
CONSTANTS = "constants.json"

_CONSTANTS_PROGRAM = """
#include <cstdio>
#include "kernels/cuda/kernels/kernels.h"
int main() {
  std::printf("{\\"range_keys\\": %d, \\"tile_keys\\": %d, \\"tile_lines\\": %d, \\"prefill_warps\\": %d, ",
              baton::kAttentionRange, baton::kAttentionTileKeys, baton::kAttentionTileRows,
              baton::kPrefillAttentionWarps);
  std::printf("\\"merge_warps\\": %d, \\"shared_bytes\\": {", baton::kMergeAttentionWarps);
  const char* between = "";
  for (int head_dim : baton::kAttentionHeadDims) {
    std::printf("%s\\"%d\\": {\\"split\\": %zu, \\"prefill\\": %zu}", between, head_dim,
                baton::SplitAttentionSharedBytes(head_dim), baton::PrefillAttentionSharedBytes(head_dim));
    between = ", ";
  }
  std::printf("}}\\n");
}
"""


def find_nvcc(given=None):
    """Returns the path of nvcc, or raises SassError where there is none."""
    if given:
        if os.access(given, os.X_OK) and os.path.isfile(given):
            return given
        raise SassError(f"--nvcc {given}: no such program")
    cuda = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("nvcc") or shutil.which("nvcc", path=os.path.join(cuda, "bin"))
    if not found:
        raise SassError(f"there is no nvcc on PATH or in {cuda}/bin; set --nvcc to its path")
    return found


def nvcc_flags(source):
    """Returns the options with which the build compiles kernels (cuda.cmake), for one architecture."""
    return ["-std=c++20", "-O3", f"-I{source}",
            f"-gencode=arch=compute_{ARCHITECTURE},code=sm_{ARCHITECTURE}"]


def build(source, folder, nvcc, kernels=KERNELS):
    """Writes KERNEL.cubin of each kernel, and the constants, into `folder`. `source` is the root of the repository."""
    source, folder = pathlib.Path(source), pathlib.Path(folder)
    if not (source / "kernels/cuda/kernels/kernels.h").is_file():
        raise SassError(f"{source} is not the root of the repository: it has no kernels/cuda/kernels/kernels.h")
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "constants"
    _run(["c++", "-std=c++20", f"-I{source}", "-x", "c++", "-", "-o", program], text=_CONSTANTS_PROGRAM)
    (folder / CONSTANTS).write_text(_run([program]))
    program.unlink()
    for kernel in kernels:
        _run([nvcc, *nvcc_flags(source), "-cubin", "-o", folder / f"{kernel}.cubin",
              source / f"kernels/cuda/{kernel}.cu"])


def constants(folder):
    """Returns the constants that `build` left in `folder`."""
    path = pathlib.Path(folder) / CONSTANTS
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise SassError(f"{folder} has no {CONSTANTS}; make the folder with `attention_time build {folder}`") from None
    except json.JSONDecodeError as error:
        raise SassError(f"{path}: {error}") from error


def _run(command, text=None):
    command = [os.fspath(word) for word in command]
    try:
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SassError(f"there is no {command[0]}") from None
    if result.returncode:
        raise SassError(f"{' '.join(command)}: {result.stderr.strip() or f'exit status {result.returncode}'}")
    return result.stdout
