"""The files in deploy/: Kubernetes accepts the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

FLEET = Path(__file__).parents[2] / "deploy" / "fleet"


def manifests() -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((FLEET / "kubernetes.yaml").read_text())]


def test_the_manifest_fits_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    for one in manifests():
        validate.validate(one, "1.29", strict=True)


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
