//! Offloaded objects whose names have the greatest length that Kubernetes accepts.

use super::{is_gone, peered};
use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, liqoctl, serial};
use crate::peering::unpeer;
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, objects_with_the_longest_names_are_offloaded);
}

/// The length of the longest name of a namespace, a Service and a container.
const LABEL_LEN: usize = 63;

/// The length of the longest name of a ConfigMap and a Secret.
const SUBDOMAIN_LEN: usize = 253;

/// The length of the longest name of a pod that runs in a namespace with the longest name. The kubelet creates a folder with
/// the name `NAMESPACE_POD_UID`, and names of files have 255 bytes at most.
const POD_LEN: usize = 255 - LABEL_LEN - UID_LEN - 2;

const UID_LEN: usize = 36;

async fn objects_with_the_longest_names_are_offloaded(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let home = Namespace::create(rome, &label("namespace")).await?;
    // By default, the remote name has the ID of the cluster as a suffix, and would be too long.
    let offload = [
        "offload",
        "namespace",
        home.name(),
        "--pod-offloading-strategy=LocalAndRemote",
        "--namespace-mapping-strategy=EnforceSameName",
    ];
    liqoctl(rome, &offload)?;
    let remote = Namespace::existing(milan, home.name()).await?;
    for object in objects() {
        home.apply(&object.to_string()).await?;
    }
    let [there, here] = ["there", "here"].map(pod_name);
    for pod in [&there, &here] {
        home.wait(&format!("pod/{pod}"), "Ready").await?;
    }
    let node = home
        .get(&format!("pod/{there}"), "{.spec.nodeName}")
        .await?;
    ensure!(node == MILAN, "{node}");
    remote.wait(&format!("pod/{there}"), "Ready").await?;

    let read = "cat /configuration/text /secret/text";
    let files = home.sh(&there, read).await?;
    ensure!(files == "configured secret", "{files}");
    let token = "cat /var/run/secrets/kubernetes.io/serviceaccount/token";
    ensure!(!home.sh(&there, token).await?.is_empty());
    let log = home.kubectl(&["logs", &there]).await?;
    ensure!(log.contains("listening"), "{log}");
    let request = format!("curl -sS -m 2 http://{}/", label("service"));
    for (namespace, pod) in [(&home, &here), (&remote, &there)] {
        until(
            Deadline::after(SOON),
            "a reply of the Service",
            async || {
                let reply = namespace.sh(pod, &request).await?;
                ensure!(!reply.is_empty(), "it is empty");
                Ok(())
            },
        )
        .await?;
    }

    let unoffload = ["unoffload", "namespace", home.name(), "--skip-confirm"];
    liqoctl(rome, &unoffload)?;
    is_gone(milan, remote.name())?;
    home.kubectl(&["delete", "pods", "--all", "--wait"]).await?;
    unpeer([rome, milan], &[]).await
}

/// Returns a name of [`LABEL_LEN`] characters.
fn label(prefix: &str) -> String {
    format!("{prefix:x<LABEL_LEN$}")
}

/// Returns a name of [`SUBDOMAIN_LEN`] characters, whose parts have up to 63.
fn subdomain(prefix: &str) -> String {
    let parts = [prefix, "b", "c", "d"].map(label);
    let mut name = parts.join(".");
    name.truncate(SUBDOMAIN_LEN);
    name
}

/// Returns a name of [`POD_LEN`] characters.
fn pod_name(prefix: &str) -> String {
    let mut name = subdomain(prefix);
    name.truncate(POD_LEN);
    name
}

fn objects() -> [Value; 5] {
    [
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": subdomain("configuration")},
            "data": {"text": "configured "},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": subdomain("secret")},
            "stringData": {"text": "secret"},
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": label("service")},
            "spec": {
                "selector": {"app": label("app")},
                "ports": [{"port": 80, "targetPort": 8080}],
            },
        }),
        pod("there", "In"),
        pod("here", "NotIn"),
    ]
}

/// A pod on virtual nodes, or on others.
fn pod(prefix: &str, operator: &str) -> Value {
    let (configuration, secret) = (subdomain("configuration"), subdomain("secret"));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name(prefix), "labels": {"app": label("app")}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "liqo.io/type", "operator": operator, "values": ["virtual-node"]},
                ]}],
            }}},
            "containers": [{
                "name": label("container"),
                "image": "localhost/tools:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": ["whoami"],
                "readinessProbe": {
                    "httpGet": {"path": "/healthz", "port": 8080},
                    "periodSeconds": 1,
                },
                "volumeMounts": [
                    {"name": "configuration", "mountPath": "/configuration"},
                    {"name": "secret", "mountPath": "/secret"},
                ],
            }],
            "volumes": [
                {"name": "configuration", "configMap": {"name": configuration}},
                {"name": "secret", "secret": {"secretName": secret}},
            ],
        },
    })
}
