"""The manifests of contrib/kubernetes: valid by Kubernetes' schema, complete in themselves, and
with options that kctl has. They are not run here."""

import shlex
from pathlib import Path

import pytest
import yaml

from kctl.cli.app import run as kctl

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((ROOT / "contrib" / "kubernetes").glob("*.yaml"))
PAGE = (ROOT / "docs" / "spark-clusters.md").read_text()


def resources(path):
    return list(yaml.safe_load_all(path.read_text()))


def deployment(path):
    (found,) = [it for it in resources(path) if it["kind"] == "Deployment"]
    return found["spec"]


@pytest.mark.slow
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda it: it.name)
def test_a_manifest_is_valid_by_the_schema_of_kubernetes(path):
    schema = pytest.importorskip("kubernetes_validate")
    for resource in resources(path):
        schema.validate(resource, schema.latest_version().rpartition(".")[0], strict=True)
    broken = resources(path)[-1]
    broken["spec"]["replica"] = 1
    with pytest.raises(schema.ValidationError):
        schema.validate(broken, schema.latest_version().rpartition(".")[0], strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda it: it.name)
def test_two_pods_never_write_to_one_table(path):
    spec = deployment(path)
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda it: it.name)
def test_names_in_a_manifest_lead_somewhere(path):
    pod = deployment(path)["template"]["spec"]
    (container,) = pod["containers"]
    names = {(it["kind"], it["metadata"]["name"]) for it in resources(path)}
    for volume in pod["volumes"]:
        assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
    assert {it["name"] for it in container["volumeMounts"]} == {it["name"] for it in pod["volumes"]}
    ports = {it["name"]: it["containerPort"] for it in container["ports"]}
    assert container["readinessProbe"]["httpGet"]["port"] in ports
    settings = dict(
        it.removeprefix("--conf=").split("=", 1)
        for it in container["args"]
        if it.startswith("--conf=")
    )
    if settings:
        assert ("ServiceAccount", pod["serviceAccountName"]) in names
        assert ("Service", settings["spark.driver.host"]) in names
        assert int(settings["spark.driver.port"]) == ports["driver"]
        assert int(settings["spark.driver.blockManager.port"]) == ports["blocks"]
        assert settings["spark.kubernetes.container.image"] == container["image"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda it: it.name)
def test_kctl_has_the_options_of_a_manifest(path, tmp_path, capfd):
    (container,) = deployment(path)["template"]["spec"]["containers"]
    words = [it for it in container["args"] if not it.startswith("--out=")]
    # The last check before anything is contacted: --follow has no end.
    assert kctl([*words, "--out", str(tmp_path / "table"), "--offset", "1..5"]) == 2
    assert "--follow has no end" in capfd.readouterr().err


def test_the_page_names_the_manifests():
    for path in MANIFESTS:
        assert f"contrib/kubernetes/{path.name}" in PAGE
    assert shlex.split("kubectl apply")[0] in PAGE
