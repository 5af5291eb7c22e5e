#!/usr/bin/env python3
"""The files of deploy/kubernetes are what the published schemas of Kubernetes and of Kubeflow's Trainer (with JobSet's) take:
every field is known there and has the right type. Needs kubernetes-validate and kubeflow-trainer-api.
"""
import pathlib
import subprocess
import sys
import unittest

import kubeflow_trainer_api.models as models
import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy/kubernetes"
MODELS = {
    "ClusterTrainingRuntime": models.TrainerV1alpha1ClusterTrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
    "JobSet": models.JobsetV1alpha2JobSet,
}


def documents():
    for file in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            yield file.name, document


def pods(node):
    """All pods' templates below a node of a document."""
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for value in node.values():
            yield from pods(value)
    elif isinstance(node, list):
        for value in node:
            yield from pods(value)


class Kubernetes(unittest.TestCase):
    def assert_contains(self, told, kept, path=""):
        """A model drops the fields that it does not know: all that a file tells has to come back."""
        if isinstance(told, dict):
            for key, value in told.items():
                self.assertIn(key, kept or {}, f"{path}/{key} is no field of the schema")
                self.assert_contains(value, kept[key], f"{path}/{key}")
        elif isinstance(told, list):
            self.assertEqual(len(told), len(kept), path)
            for index, (ours, theirs) in enumerate(zip(told, kept)):
                self.assert_contains(ours, theirs, f"{path}[{index}]")
        else:
            self.assertEqual(told, kept, path)

    def test_every_document_follows_its_published_schema(self):
        kinds = set()
        for name, document in documents():
            kind = document["kind"]
            kinds.add(kind)
            with self.subTest(file=name, kind=kind):
                if kind in MODELS:
                    self.assert_contains(document, MODELS[kind].from_dict(document).to_dict())
                else:
                    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        self.assertEqual(kinds, {*MODELS, "Job", "Service", "Secret"})

    def test_an_unknown_field_is_found(self):
        document = next(d for n, d in documents() if n == "jobset.yaml")
        document["spec"]["replicatedJobs"][0]["completionz"] = 4
        with self.assertRaises(AssertionError):
            self.assert_contains(document, MODELS["JobSet"].from_dict(document).to_dict())

    def test_every_variable_of_ours_is_one_that_tutti_knows(self):
        known = subprocess.run([sys.argv[1], "doctor", "--variables"], check=True, capture_output=True, text=True).stdout
        names = {v["name"] for _, d in documents() for pod in pods(d) for c in pod["containers"] for v in c.get("env", [])}
        self.assertTrue(names)
        for name in names:
            self.assertIn(f"{name} ", known)

    def test_the_number_of_pods_is_the_same_wherever_it_is_written(self):
        for file in ("indexed-job.yaml", "jobset.yaml"):
            text = (FOLDER / file).read_text()
            jobs = [d for n, d in documents() if n == file and d["kind"] in ("Job", "JobSet")]
            for job in jobs:
                spec = job["spec"] if job["kind"] == "Job" else job["spec"]["replicatedJobs"][0]["template"]["spec"]
                nodes = {str(spec["completions"]), str(spec["parallelism"])}
                nodes |= {v["value"] for p in pods(spec) for c in p["containers"] for v in c["env"]
                          if v["name"] == "TUTTI_NNODES"}
                self.assertEqual(len(nodes), 1, text)

    def test_secrets_come_by_reference_and_never_by_a_command_line(self):
        for name, document in documents():
            for pod in pods(document):
                for container in pod["containers"]:
                    words = " ".join(container.get("command", []) + container.get("args", []))
                    self.assertNotIn("SECRET", words.upper(), name)
                    for variable in container.get("env", []):
                        if variable["name"] == "TUTTI_JOB_SECRET":
                            self.assertIn("secretKeyRef", variable.get("valueFrom", {}), name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
