//! The consumer `rome` with a virtual kubelet, and the provider `milan`, which has webhooks and one node without container runtime.

use crate::authentication::site::Site;
use crate::fixture::{Deadline, LIQO, SOON, chart, until};
use crate::namespaces::{offload, until_phase};
use crate::peering::Peering;
use crate::upstream::offloading::node::Node;
use crate::upstream::offloading::process::VirtualKubelet;
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use control_api::ResourceSlice;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kubernetes_lab::control_plane::Options;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Address of the webhooks of `milan`.
const WEBHOOKS: Ipv4Addr = Ipv4Addr::new(10, 96, 9, 4);

const NODE: &str = "milan-worker";

/// The namespace `shop`, which is offloaded as `shop-rome`.
pub(crate) struct Scene {
    // Ends before the control planes.
    pub(crate) kubelet: VirtualKubelet,
    pub(crate) rome: Rest,
    pub(crate) milan: Rest,
    pub(crate) peering: Peering,
}

impl Scene {
    /// Peers the clusters with a slice of 20 processors, and offloads the namespace.
    pub(crate) async fn start() -> Result<Self> {
        let peering = Self::peer().await?;
        let kubelet = VirtualKubelet::start(&peering.rome).await?;

        Self::offload(peering, kubelet).await
    }

    /// Peers the clusters, without a virtual kubelet.
    pub(crate) async fn peer() -> Result<Peering> {
        let peering = Self::clusters().await?;
        peering.peer().await?;

        Ok(peering)
    }

    /// Starts the clusters.
    pub(crate) async fn clusters() -> Result<Peering> {
        let mut options = Options::new(artifacts()?);
        options.audit = false;
        Self::clusters_with(options).await
    }

    /// Starts the clusters. `milan` has these options of its control plane.
    pub(crate) async fn clusters_with(of_milan: Options) -> Result<Peering> {
        let mut options = Options::new(artifacts()?);
        options.audit = false;
        let image = "--virtual-kubelet-image=localhost/liqo/virtual-kubelet:dev";
        let rome = Site::start_with("rome", "milan", &[image], options).await?;
        rome.control_plane()
            .install(&chart()?, LIQO, &["VkOptionsTemplate", "Network"])
            .await?;
        let milan = Site::start_with_webhooks_and("milan", "rome", WEBHOOKS, of_milan).await?;

        Ok(Peering { rome, milan })
    }

    /// Offloads the namespace.
    pub(crate) async fn offload(peering: Peering, kubelet: VirtualKubelet) -> Result<Self> {
        offload(&peering.rome, "shop", &json!({})).await?;
        until_phase(&peering.rome, "shop", "Ready").await?;
        let scene = Self {
            rome: Rest::new(peering.rome.client.clone(), "kubectl"),
            milan: Rest::new(peering.milan.client.clone(), "kubectl"),
            peering,
            kubelet,
        };
        scene.node().await?;

        Ok(scene)
    }

    async fn node(&self) -> Result<Node<'_>> {
        Node::add(&self.peering.milan, NODE, "shop-rome").await
    }

    /// Creates a pod on the virtual node, as the scheduler binds it.
    pub(crate) async fn create(&self, name: &str, cpu: &str, volumes: &Value) -> Result<()> {
        let pod = pod(name, cpu, volumes);
        // The namespace gets its ServiceAccount a moment after it exists.
        until(Deadline::after(SOON), "the pod", async || {
            self.rome.create(&pod).await
        })
        .await?;

        Ok(())
    }

    /// Creates a pod with a variable of this value.
    pub(crate) async fn create_with_text(&self, name: &str, text: &str) -> Result<()> {
        let mut pod = pod(name, "1", &json!([]));
        pod["spec"]["containers"][0]["env"] = json!([{"name": "TEXT", "value": text}]);
        self.rome.create(&pod).await?;

        Ok(())
    }

    /// Returns name, UID and version of each pod of the provider.
    pub(crate) async fn remote_pods(&self) -> Result<Vec<[Value; 3]>> {
        let mut found = Vec::new();
        for pod in self.milan.list("Pod", "shop-rome", "").await? {
            let metadata = &pod["metadata"];
            found.push(["name", "uid", "resourceVersion"].map(|field| metadata[field].clone()));
        }

        Ok(found)
    }

    /// Reports the pod as running once the provider has created it, and waits until the consumer shows this, and nothing else.
    pub(crate) async fn run(&self, name: &str) -> Result<()> {
        self.run_at(name, None).await?;

        Ok(())
    }

    /// Reports the pod as running with this address, and returns the consumer's pod.
    pub(crate) async fn run_at(&self, name: &str, address: Option<&str>) -> Result<Value> {
        let remote = ("Pod", "shop-rome", name);
        self.milan.until(remote, |_| true).await?;
        let node = self.node().await?;
        node.bind(name, NODE).await?;
        let since = "2026-11-21T07:20:01Z";
        let addresses: Vec<_> = address.iter().map(|it| json!({"ip": it})).collect();
        let running = json!({
            "phase": "Running",
            "podIP": address,
            "podIPs": addresses,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
            "containerStatuses": [{
                "name": "web", "image": "web:1", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": since}},
            }],
        });
        node.report(name, &running).await?;

        self.rome
            .until(("Pod", "shop", name), |it| {
                let status = &it["status"];
                let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
                let is_stale = |it: &Value| it["reason"] == "OffloadingBackOff";
                status["phase"] == "Running"
                    && status["reason"].is_null()
                    && status["message"].is_null()
                    && !conditions.iter().any(is_stale)
            })
            .await
    }

    /// Ends a pod of the provider that is to be deleted, as its node does, and waits until the consumer's pod is gone.
    pub(crate) async fn end(&self, name: &str) -> Result<()> {
        let ended = json!({"phase": "Succeeded"});
        self.node().await?.end(name, &ended).await?;
        until(Deadline::after(SOON), "the end of the pod", async || {
            let left = self.rome.get_opt("Pod", "shop", name).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await
    }

    /// Waits until status and Event of a pod contain the cause for which the provider does not create it.
    pub(crate) async fn until_refused(&self, name: &str, reason: &str, cause: &str) -> Result<()> {
        let pod = self
            .rome
            .until_checked(("Pod", "shop", name), |it| {
                let status = &it["status"];
                ensure!(status["phase"] == "Pending", "{status}");
                ensure!(status["reason"] == "OffloadingBackOff", "{status}");
                let message = status["message"].as_str().unwrap_or_default();
                ensure!(message.contains(cause), "{status}");
                Ok(())
            })
            .await?;
        let uid = &pod["metadata"]["uid"];
        until(Deadline::after(SOON), cause, async || {
            let events = self.rome.list("Event", "shop", "").await?;
            let is_it = |it: &&Value| {
                let message = it["message"].as_str().unwrap_or_default();
                let object = &it["involvedObject"];
                it["reason"] == reason
                    && it["type"] == "Warning"
                    && object["kind"] == "Pod"
                    && object["uid"] == *uid
                    && message.contains(cause)
            };
            ensure!(events.iter().any(|it| is_it(&it)), "{events:?}");
            Ok(())
        })
        .await
    }

    /// Returns the Events about a pod of the consumer.
    pub(crate) async fn events(&self, name: &str) -> Result<Vec<Value>> {
        let mut events = self.rome.list("Event", "shop", "").await?;
        events.retain(|it| it["involvedObject"]["name"] == name);

        Ok(events)
    }

    /// Returns the warnings about a pod of the consumer.
    pub(crate) async fn warnings(&self, name: &str) -> Result<Vec<Value>> {
        let mut warnings = self.events(name).await?;
        warnings.retain(|it| it["type"] == "Warning");

        Ok(warnings)
    }

    /// Requests another number of processors, and waits until the provider grants it.
    pub(crate) async fn resize(&self, cpu: &str) -> Result<()> {
        let rome = &self.peering.rome;
        let slices: Api<ResourceSlice> =
            Api::namespaced(rome.client.clone(), &rome.tenant_namespace());
        let patch = Patch::Merge(json!({"spec": {"resources": {"cpu": cpu}}}));
        slices
            .patch("milan", &PatchParams::default(), &patch)
            .await
            .context("failed to change the ResourceSlice")?;
        let namespace = self.peering.milan.tenant_namespace();
        until(Deadline::after(SOON), "the Quota", async || {
            let quotas = self.milan.list("Quota", &namespace, "").await?;
            ensure!(quotas.len() == 1, "{quotas:?}");
            ensure!(quotas[0]["spec"]["resources"]["cpu"] == cpu, "{quotas:?}");
            Ok(())
        })
        .await
    }
}

/// Returns a pod of the virtual node, with the toleration that admission adds.
pub(crate) fn pod(name: &str, cpu: &str, volumes: &Value) -> Value {
    let toleration = json!({
        "key": "virtual-node.liqo.io/not-allowed", "operator": "Exists", "effect": "NoExecute",
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "nodeName": "milan",
            "automountServiceAccountToken": false,
            "tolerations": [toleration],
            "containers": [{
                "name": "web", "image": "web:1", "resources": {"requests": {"cpu": cpu}},
            }],
            "volumes": volumes,
        },
    })
}
