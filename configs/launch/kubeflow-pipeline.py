"""A Kubeflow pipeline that trains and evaluates a model, and serves it if its AP is high enough.

    pip install kfp kfp-kubernetes
    python3 kubeflow-pipeline.py pipeline.yaml --image REGISTRY/onegraph:TAG --gpus 8

The pipeline runs the image of the Dockerfile in this folder, with the volume onegraph-data of
kubeflow-mpijob.yaml. A restarted training step resumes from the last checkpoint. The serving step
needs a service account that may apply deployments and services in its namespace.
Compiled by kfp 2.17; the commands of the first two steps were run on one machine. Not tested on a
cluster.
"""

import argparse

from kfp import compiler, dsl, kubernetes

DATA = "/data"
# $0, $1 and so on are the arguments of the step.
TRAIN = 'exec onegraph train "$0" --set train.run_dir="$1" --set train.name="$2" --ranks "$3" --resume auto'
# The image contains jq.
SCORE = """onegraph eval --run "$0"
onegraph runs "$0" --json | jq -e --argjson least "$1" '.[0].best.bbox >= $least' ||
    { echo "box AP is below $1: nothing is deployed" >&2; exit 1; }"""
SERVE = """cat <<END | kubectl apply -f -
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      containers:
        - name: serve
          image: $2
          command: [onegraph, serve, --run, $0, --host, 0.0.0.0, --port, "8080"]
          ports: [{containerPort: 8080}]
          readinessProbe: {httpGet: {path: /ping, port: 8080}}
          volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: onegraph-data}}]
---
apiVersion: v1
kind: Service
metadata: {name: $1}
spec:
  selector: {app: $1}
  ports: [{port: 80, targetPort: 8080}]
END"""


def pipeline(image, gpus, kubectl):
    """The pipeline for an image and a number of GPUs, which must be constants for Kubernetes."""

    @dsl.container_component
    def train(config: str, runs: str, name: str):
        return dsl.ContainerSpec(image, ["bash", "-ec", TRAIN], [config, runs, name, str(gpus)])

    @dsl.container_component
    def score(run: str, least_box_ap: float):
        return dsl.ContainerSpec(image, ["bash", "-ec", SCORE], [run, least_box_ap])

    @dsl.container_component
    def serve(run: str, name: str):
        return dsl.ContainerSpec(kubectl, ["bash", "-ec", SERVE], [run, name, image])

    def at_work(task):
        kubernetes.mount_pvc(task, "onegraph-data", DATA)
        # NCCL uses shared memory; a pod has 64 MiB by default.
        kubernetes.empty_dir_mount(task, "shared-memory", "/dev/shm", medium="Memory", size_limit="16Gi")
        # Never reuse the score of a different run.
        return task.set_caching_options(False)

    @dsl.pipeline(name="onegraph")
    def of_model(config: str = "torchvision_r50", name: str = "model", least_box_ap: float = 0.3):
        trained = at_work(train(config=config, runs=f"{DATA}/runs", name=name))
        trained.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(gpus).set_retry(3)
        run = f"{DATA}/runs/{name}"
        scored = at_work(score(run=run, least_box_ap=least_box_ap)).after(trained)
        scored.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)
        serve(run=run, name=name).after(scored).set_caching_options(False)

    return of_model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="file to write, YAML")
    parser.add_argument("--image", required=True, help="the image with onegraph")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of the training pod")
    parser.add_argument("--kubectl", default="bitnami/kubectl:1.31", help="an image with kubectl and bash")
    given = parser.parse_args()
    compiler.Compiler().compile(pipeline(given.image, given.gpus, given.kubectl), given.out)
