"""The examples of compose and Kubernetes: they are what the image and the service are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from served import start_command
from turnwise.tokens.tokenizers.files import SHIPPED

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def find_container(name: str) -> dict[str, Any]:
    """Return the container of turnwise in a file."""
    found: dict[str, Any]
    for document in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")):
        if "services" in document:
            found = document["services"]["turnwise"]
        elif "template" in document["spec"]:
            pod = document["spec"]["template"]["spec"]
            found = next(one for one in pod["containers"] if one["name"] == "turnwise")
    return found


@pytest.mark.law(1)
@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml", "sidecar.yaml"])
def test_the_command_starts(name: str, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((SHIPPED / file).read_bytes())
    container = find_container(name)
    words = [
        word.replace("/model", str(tmp_path))
        for word in container.get("command") or container["args"]
    ]
    with start_command("--host", "0.0.0.0", *words) as process:
        assert process.stderr is not None
        assert re.search(r"http://127.0.0.1:\d+", first := process.stderr.readline()), first
        process.terminate()


@pytest.mark.parametrize("name", ["kubernetes.yaml", "sidecar.yaml"])
def test_ports_and_probes(name: str) -> None:
    container = find_container(name)
    (port,) = container["ports"]
    assert f"EXPOSE {port['containerPort']}" in DOCKERFILE
    probes = container["livenessProbe"]["httpGet"], container["readinessProbe"]["httpGet"]
    assert [probe["path"] for probe in probes] == ["/healthz", "/readyz"]
    assert {probe["port"] for probe in probes} == {port["name"]}
    safety = container["securityContext"]
    assert safety["readOnlyRootFilesystem"] and not safety["allowPrivilegeEscalation"]


def test_the_health_check_is_a_program_that_the_image_has() -> None:
    check = re.search(r"CMD (\[\"/usr/bin/python3\".*)", DOCKERFILE)
    assert check is not None
    program, _, code = json.loads(check[1])
    assert program in DOCKERFILE.split("ENTRYPOINT")[1]
    compile(code, "health check", "exec")
