//! What a virtual kubelet writes for its VirtualNode `milan`, and the endpoints that it reflects.

use super::controllers::NAMESPACE;
use super::golden::Golden;
use super::node::Node;
use super::process::ADDRESS;
use crate::authentication::site::Site;
use crate::fixture::{Deadline, SOON, until};
use crate::upstream::golden::differences_of;
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

const TENANT: &str = "liqo-tenant-milan";

/// Leases of the tenant namespace.
const LEASES: [&str; 2] = ["milan", "virtual-kubelet-leader-election"];

/// Node and Leases are those of upstream's clusters.
///
/// Exceptions: annotations that only one of both has, the pod CIDR, which this control plane does not allocate, and the version of
/// Kubernetes.
pub(super) async fn is_upstreams(rest: &Rest, pod: &str) -> Result<()> {
    let expected = node();
    let node = rest
        .until_checked(("Node", "", "milan"), |found| {
            let mut found = found.clone();
            for (part, field) in [
                ("metadata", "annotations"),
                ("spec", "podCIDR"),
                ("spec", "podCIDRs"),
            ] {
                if let Some(part) = found[part].as_object_mut() {
                    part.remove(field);
                }
            }
            let conditions = found["status"]["conditions"].as_array_mut();
            for condition in conditions.into_iter().flatten() {
                let condition = condition.as_object_mut().context("no condition")?;
                condition.remove("lastHeartbeatTime");
            }
            let version = found["status"]["nodeInfo"]["kubeletVersion"].take();
            ensure!(version.as_str().is_some_and(|it| it.starts_with("v1.")));
            let differences = differences_of(&found, &expected);
            ensure!(differences.is_empty(), "{differences:#?}");
            Ok(())
        })
        .await?;
    let lease = rest
        .until(("Lease", "kube-node-lease", "milan"), |it| {
            it["spec"]["holderIdentity"] == "milan"
        })
        .await?;
    ensure!(lease["spec"]["leaseDurationSeconds"] == 40, "{lease}");
    let owner = &lease["metadata"]["ownerReferences"][0];
    ensure!(owner["uid"] == node["metadata"]["uid"], "{lease}");
    for name in LEASES {
        rest.until(("Lease", TENANT, name), |it| {
            it["spec"]["holderIdentity"] == pod && it["spec"]["leaseDurationSeconds"] == 15
        })
        .await?;
    }

    Ok(())
}

fn node() -> Value {
    let resources =
        json!({"cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200"});
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        let (type_, status) = (json!(type_), json!(status));
        json!({"type": type_, "status": status, "reason": reason, "message": message})
    };
    let pressure = |type_: &str, reason: &str| {
        let message = "The remote cluster is advertising sufficient resources";
        condition(type_, "False", reason, message)
    };
    let ready = "The Liqo Virtual Kubelet is posting ready status";
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "milan",
            "labels": {
                "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": "milan",
                "kubernetes.io/os": "linux",
                "kubernetes.io/role": "agent",
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/type": "virtual-node",
                "node.kubernetes.io/exclude-from-external-load-balancers": "true",
                "provider": "AWS",
                "region": "B",
                "storage.liqo.io/available": "true",
                "type": "virtual-kubelet",
            },
        },
        "spec": {"taints": [{
            "effect": "NoExecute", "key": "virtual-node.liqo.io/not-allowed", "value": "true",
        }]},
        "status": {
            "addresses": [{"address": ADDRESS, "type": "InternalIP"}],
            "allocatable": resources,
            "capacity": resources,
            "conditions": [
                condition("Ready", "True", "KubeletReady", ready),
                pressure("MemoryPressure", "RemoteClusterHasSufficientMemory"),
                pressure("DiskPressure", "RemoteClusterHasNoDiskPressure"),
                pressure("PIDPressure", "RemoteClusterHasNoPIDPressure"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "",
                "containerRuntimeVersion": "",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "kubeletVersion": null,
                "machineID": "",
                "operatingSystem": "Linux",
                "osImage": "",
                "systemUUID": "",
            },
        },
    })
}

/// The endpoints of a local pod are reflected, and those at the provider are left out: its own slices have them.
pub(super) async fn reflects_endpoints(rome: &Site, provider: &Rest) -> Result<()> {
    let node = Node::add(rome, "rome-worker", "demo").await?;
    let mut pod = Golden::ROME.pod()?;
    pod["metadata"]["name"] = json!("local");
    pod["metadata"]["labels"] = json!({"app": "local"});
    pod["spec"]["nodeName"] = json!("rome-worker");
    rome.apply(&pod).await?;
    let mut status = Golden::ROME.local_status()?;
    status["podIP"] = json!("10.244.1.6");
    status["podIPs"] = json!([{"ip": "10.244.1.6"}]);
    let pod = node.report("local", &status).await?;
    for service in ["local", "web"] {
        let object = Golden::ROME.original("services", service)?;
        rome.apply(&object).await?;
    }
    // This slice is not Kubernetes' own, whose pods have addresses: that of the remote pod is not reflected without networking.
    let mut slice = Golden::ROME.original("endpointslices", "web-c2jd2")?;
    slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = json!("laboratory");
    rome.apply(&slice).await?;

    let mut local = ours(Golden::ROME.reflected("endpointslices", "local-dqlcb")?);
    let target = &mut local["spec"]["template"]["endpoints"][0]["targetRef"];
    target["uid"] = pod["metadata"]["uid"].clone();
    let labels = "kubernetes.io/service-name=local";
    until(Deadline::after(SOON), labels, async || {
        let found = provider
            .only("ShadowEndpointSlice", NAMESPACE, labels)
            .await?;
        // Kubernetes' controller chooses them.
        for field in ["name", "annotations"] {
            local["metadata"][field] = found["metadata"][field].clone();
        }
        is_equal(&found, &local)
    })
    .await?;
    let web = ours(Golden::ROME.reflected("endpointslices", "web-c2jd2")?);
    let key = ("ShadowEndpointSlice", NAMESPACE, "web-c2jd2");
    provider
        .until_checked(key, |found| is_equal(found, &web))
        .await?;
    for service in ["local", "web"] {
        let expected = ours(Golden::ROME.reflected("services", service)?);
        let key = ("Service", NAMESPACE, service);
        provider
            .until_checked(key, |found| {
                let mut found = found.clone();
                let spec = found["spec"].as_object_mut().context("no spec")?;
                for field in ["clusterIP", "clusterIPs", "ipFamilies"] {
                    spec.remove(field);
                }
                found.as_object_mut().context("no object")?.remove("status");
                is_equal(&found, &expected)
            })
            .await?;
    }

    Ok(())
}

/// Returns an object of upstream's with the differences of this project: without the annotation of `kubectl apply`, and with all
/// conditions of endpoints.
pub(super) fn ours(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let annotations = metadata.get_mut("annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        metadata.retain(|_, field| *field != json!({}));
    }
    let endpoints = object.pointer_mut("/spec/template/endpoints");
    let endpoints = endpoints.and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        endpoint["conditions"]["serving"] = endpoint["conditions"]["ready"].clone();
        endpoint["conditions"]["terminating"] = json!(false);
    }

    object
}

pub(super) fn is_equal(found: &Value, expected: &Value) -> Result<()> {
    let differences = differences_of(found, expected);
    ensure!(differences.is_empty(), "{differences:#?}");

    Ok(())
}

/// A stopped virtual kubelet holds no Lease, so that the next one need not wait.
pub(super) async fn has_released_leases(rest: &Rest) -> Result<()> {
    for name in LEASES {
        let lease = rest.get("Lease", TENANT, name).await?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        ensure!(holder.is_empty(), "{lease}");
    }

    Ok(())
}
