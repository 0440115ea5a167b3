"""The files of examples/spark fit together.  What lake.py does is tested by killing it: tests/spark/test_source_spark.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyspark

from onceway.spark.options import source_options
from onceway.spark.source.service import read_plan
from tests.docs.test_commands import check_onceway
from tests.running import ROOT
from tests.spark.driver import lake

DIRECTORY = ROOT / "examples" / "spark"
MANIFEST: list[dict[str, Any]] = list(yaml.safe_load_all((DIRECTORY / "kubernetes.yaml").read_text()))


def test_one_file_does_for_receivers_and_queries(tmp_path: Path) -> None:
    in_pods = tmp_path / "lake.yaml"
    in_pods.write_text(MANIFEST[0]["data"]["lake.yaml"])
    for file in (DIRECTORY / "lake.yaml", in_pods):
        plan = read_plan(str(file))
        options = source_options(lake.options_of(file, ingest="apart", reader="lake"), "stream")
        assert (options.location, options.subscription) == (plan.options.location, "lake")
        assert source_options(lake.options_of(file), "stream").ingest == "driver"


def test_the_commands_of_the_readme_start_what_there_is() -> None:
    readme = (DIRECTORY / "README.md").read_text()
    jobs = re.findall(r"^\$ .*examples/spark/lake\.py (.*)$", readme, re.MULTILINE)
    assert len(jobs) >= 4
    for arguments in jobs:
        lake.parser().parse_args(arguments.split())
    (core,) = Path(pyspark.__path__[0], "jars").glob("spark-core_*.jar")
    with ZipFile(core) as jar:
        for name in re.findall(r"spark-class (\S+)", readme):
            jar.getinfo(f"{name.replace('.', '/')}.class")


def test_kubernetes_takes_the_manifest() -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs onceway[check]")
    for version in ("1.28", kubernetes_validate.latest_version()):
        for item in MANIFEST:
            kubernetes_validate.validate(item, version, strict=True)


def test_the_manifest_starts_what_the_image_has_with_files_and_ports_that_are_there(tmp_path: Path) -> None:
    config, *workloads = MANIFEST
    in_pods = tmp_path / "lake.yaml"
    in_pods.write_text(config["data"]["lake.yaml"])
    commands = {}
    for workload in workloads:
        spec = workload["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        commands[container["name"]] = container["command"]
        claims = [claim["metadata"] for claim in workload["spec"].get("volumeClaimTemplates", ())]
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            volume["name"] for volume in [*spec["volumes"], *claims]
        }
        assert workload["spec"]["selector"]["matchLabels"] == workload["spec"]["template"]["metadata"]["labels"]
        assert [volume["configMap"]["name"] for volume in spec["volumes"]] == [config["metadata"]["name"]]
    program, *arguments = commands["receivers"]
    assert (program, arguments[-1]) == ("onceway", "/etc/lake/lake.yaml")
    check_onceway(arguments)
    program, job, *arguments = commands["query"]
    assert (program, job) == ("python", "/opt/lake/lake.py")
    assert "COPY lake.py /opt/lake/" in (DIRECTORY / "Dockerfile").read_text()
    args = lake.parser().parse_args(arguments)
    assert (args.file, args.home, args.apart) == ("/etc/lake/lake.yaml", "/data/orders", "lake")
    metrics = read_plan(str(in_pods)).metrics
    (receivers,) = workloads[0]["spec"]["template"]["spec"]["containers"]
    assert [port["containerPort"] for port in receivers["ports"]] == [metrics[1]]
    annotations = workloads[0]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(metrics[1])
