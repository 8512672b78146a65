"""Build the container image with buildah, and say how large its layers are: `python scripts/check_image.py`, as root.

Where the two base images cannot be pulled, stand-ins are made of Debian's packages, as distroless is: the same Python,
no shell and no package manager. The steps of the Dockerfile are run either way. `run_in` runs a command in the image
as its user, on a file system that is read-only; tests/serve/test_image.py lets the soak of the service loose on it.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 200 * 10**6
RUNTIME = [
    "base-files",
    "netbase",
    "tzdata",
    "media-types",
    "ca-certificates",
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "libcrypt1",
    "zlib1g",
    "libbz2-1.0",
    "liblzma5",
    "libffi8",
    "libssl3",
    "libexpat1",
    "libsqlite3-0",
    "libuuid1",
    "libdb5.3",
    "libncursesw6",
    "libtinfo6",
    "libreadline8",
    "libnsl2",
    "libtirpc3",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
]
TOOLS = [
    "dash",
    "coreutils",
    "libacl1",
    "libattr1",
    "libselinux1",
    "libpcre2-8-0",
    "libgmp10",
    "python3-pip",
    "python3-distutils",
    "python3-lib2to3",
    "python3-setuptools",
    "python3-wheel",
    "python3-pkg-resources",
]
STAND_INS = {"BUILD": [*RUNTIME, *TOOLS], "BASE": RUNTIME}


class ImageBuilder:
    """buildah with a store of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        places = ["--root", str(folder / "store"), "--runroot", str(folder / "run")]
        self._words = ["buildah", *places, "--storage-driver", "vfs"]

    def run(self, *words: str | Path) -> str:
        """Run a command of buildah, and return what it prints."""
        command = [*self._words, *map(str, words)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def can_pull(self) -> bool:
        """Whether the base images are to be had."""
        lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
        names = [line.partition("=")[2] for line in lines if line.startswith(("ARG BU", "ARG BA"))]
        return all(
            subprocess.run([*self._words, "pull", "-q", name], capture_output=True).returncode == 0
            for name in names
        )

    def build(self) -> str:
        """Build the image and return its id."""
        arguments = []
        if not self.can_pull():
            print("the base images cannot be pulled: stand-ins of Debian's packages", flush=True)
            for name, packages in STAND_INS.items():
                self.make_base(name.lower(), packages)
                arguments += ["--build-arg", f"{name}=localhost/{name.lower()}"]
        wheels = self.folder / "wheels"
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels)]
        subprocess.run([*pip, f"{ROOT}[serve]", "hatchling>=1.26,<2"], check=True)
        arguments += ["--build-arg", "PIP_NO_INDEX=1", "--build-arg", "PIP_FIND_LINKS=/wheels"]
        build = ("build", "--isolation", "chroot", "--format", "docker", "--quiet")
        self.run(*build, *arguments, "--volume", f"{wheels}:/wheels:ro", "-t", "turnwise", ROOT)
        return "localhost/turnwise"

    def make_base(self, name: str, packages: list[str]) -> None:
        """Make a base image of Debian's packages: their files, and nothing is run."""
        root, debs = self.folder / name, self.folder / f"{name}.debs"
        root.mkdir()
        debs.mkdir()
        # what is installed here may be newer than what is to be had
        fresh = ["-o", "Dir::State::status=/dev/null"]
        subprocess.run(["apt-get", "download", "-qq", *fresh, *packages], check=True, cwd=debs)
        for deb in debs.iterdir():
            subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
        (root / "tmp").mkdir(exist_ok=True)
        for link, target in {"usr/bin/python3": "python3.11", "bin/sh": "dash"}.items():
            if not (root / link).exists() and (root / link).with_name(target).exists():
                (root / link).symlink_to(target)
        for place in ("usr/share/doc", "usr/share/man", "usr/share/locale"):
            shutil.rmtree(root / place, ignore_errors=True)
        container = self.run("from", "scratch")
        self.run("copy", "--quiet", container, f"{root}/", "/")
        self.run("commit", "--quiet", "--rm", container, f"localhost/{name}")

    def list_layers(self, image: str) -> list[int]:
        """Return the bytes of the layers of an image, as they are unpacked."""
        place = self.folder / "image"
        shutil.rmtree(place, ignore_errors=True)
        self.run("push", "--quiet", "--disable-compression", image, f"dir:{place}")
        manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
        return [layer["size"] for layer in manifest["layers"]]

    def mount(self, image: str) -> tuple[Path, dict[str, Any]]:
        """Return the file system of a container of the image, and the image's settings."""
        settings = json.loads(self.run("inspect", "--type", "image", image))["Docker"]["config"]
        return Path(self.run("mount", self.run("from", image))), settings


def run_in(root: Path, settings: dict[str, Any], *command: str) -> list[str]:
    """Return what runs a command in the image: as its user, with its environment, on a read-only root."""
    script = (
        f"mount --bind {root} {root} && mount -o remount,bind,ro {root} && "
        f'exec env -i {shlex.join(settings["Env"])} chroot --userspec={settings["User"]} --groups= {root} "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", script, "sh", *command]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        builder = ImageBuilder(Path(folder))
        layers = builder.list_layers(builder.build())
    print(f"layers: {' + '.join(f'{size / 1e6:.1f}' for size in layers)} MB")
    print(f"the image: {sum(layers) / 1e6:.1f} MB of at most {MAX_BYTES / 1e6:.0f}")
    return int(sum(layers) > MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())
