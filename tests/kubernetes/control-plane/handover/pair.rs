//! The consumer `rome` with two VirtualNodes of the provider `milan`, and a virtual kubelet of each.

use super::state::{REMOTE, State};
use crate::fixture::{Deadline, SOON, until};
use crate::peering::slice;
use crate::refusals::scene::{Scene, pod};
use crate::upstream::offloading::process::{Instance, VirtualKubelet};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::control_plane::Options;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};

/// The Lease of the virtual kubelet that reflects the objects of all VirtualNodes of the provider.
pub(super) const LEASE: &str = "virtual-kubelet-leader-election";

/// Name of the first VirtualNode, of its ResourceSlice, and of the Lease of its virtual kubelet.
pub(super) const FIRST: &str = "milan";

const SECOND: Instance<'_> = Instance {
    node: "milan-2",
    address: "127.0.0.10",
    arguments: &[
        "--listen-address=127.0.0.10:10251",
        "--http=127.0.0.10:8081",
    ],
};

/// The writes that [`Pair::change`] and the last ConfigMap of [`Pair::until_changed`] need, in the order of the alphabet.
const EXPECTED: [&str; 4] = [
    "create configmaps last",
    "create configmaps new",
    "delete configmaps deleted",
    "patch configmaps old",
];

/// Two virtual kubelets, of which that of the scene holds the Lease first.
pub(super) struct Pair {
    // Ends before the control planes.
    pub(super) second: VirtualKubelet,
    pub(super) scene: Scene,
}

impl Pair {
    /// Starts the virtual kubelets, and reflects objects and a pod of the second VirtualNode.
    pub(super) async fn start() -> Result<Self> {
        let peering = Scene::clusters_with(Options::new(artifacts()?)).await?;
        peering.peer().await?;
        peering.rome.apply(&slice(SECOND.node)).await?;
        let first = VirtualKubelet::start(&peering.rome).await?;
        let holder = first.pod.clone();
        let scene = Scene::offload(peering, first).await?;
        let tenant = scene.peering.rome.tenant_namespace();
        let is_held = |it: &Value| it["spec"]["holderIdentity"] == holder.as_str();
        scene.rome.until(("Lease", &tenant, LEASE), is_held).await?;
        let second = VirtualKubelet::start_of(&scene.peering.rome, &SECOND).await?;
        let pair = Self { second, scene };
        let soon = Deadline::after(SOON);
        pair.until_held(SECOND.node, &pair.second.pod, soon).await?;
        pair.populate().await?;
        // The second virtual kubelet has seen the Lease.
        pair.until_renewed().await?;

        Ok(pair)
    }

    async fn populate(&self) -> Result<()> {
        let (rome, milan) = (&self.scene.rome, &self.scene.milan);
        let metadata = json!({"name": "kept", "namespace": "shop"});
        let service = json!({"ports": [{"name": "http", "port": 80}]});
        for object in [
            config_map("kept", "1"),
            config_map("old", "1"),
            config_map("deleted", "1"),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": "1"}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service}),
        ] {
            rome.apply(&object, "user").await?;
            let kind = object["kind"].as_str().context("no kind")?;
            let name = object["metadata"]["name"].as_str().context("no name")?;
            milan.until((kind, REMOTE, name), |_| true).await?;
        }
        let root_ca = ("ConfigMap", REMOTE, "kube-root-ca.crt.rome");
        milan.until(root_ca, |_| true).await?;

        let mut pod = pod("web", "1", &json!([]));
        pod["spec"]["nodeName"] = json!(SECOND.node);
        // The namespace gets its ServiceAccount a moment after it exists.
        until(Deadline::after(SOON), "the pod", async || {
            rome.create(&pod).await
        })
        .await?;
        self.scene.run("web").await?;
        let is_running = |it: &Value| it["status"]["phase"] == "Running";
        milan
            .until(("ShadowPod", REMOTE, "web"), is_running)
            .await?;

        Ok(())
    }

    /// Creates, changes and deletes an object.
    pub(super) async fn change(&self) -> Result<()> {
        let rest = &self.scene.rome;
        rest.apply(&config_map("new", "1"), "user").await?;
        rest.apply(&config_map("old", "2"), "user").await?;
        rest.delete("ConfigMap", "shop", "deleted").await?;

        Ok(())
    }

    /// Creates a ConfigMap, and waits until it is reflected. Objects of a namespace are compared in turn, so those that were due
    /// before it are written then.
    pub(super) async fn until_added(&self, name: &str) -> Result<()> {
        self.scene
            .rome
            .apply(&config_map(name, "1"), "user")
            .await?;
        let remote = ("ConfigMap", REMOTE, name);
        self.scene.milan.until(remote, |_| true).await?;

        Ok(())
    }

    /// Waits until the changes of [`Self::change`] have arrived, checks that the second virtual kubelet has written nothing else
    /// since `before`, and returns the new state.
    pub(super) async fn until_changed(&self, before: &State) -> Result<State> {
        let milan = &self.scene.milan;
        let new = ("ConfigMap", REMOTE, "new");
        milan.until(new, |it| it["data"]["key"] == "1").await?;
        let old = ("ConfigMap", REMOTE, "old");
        milan.until(old, |it| it["data"]["key"] == "2").await?;
        until(Deadline::after(SOON), "the deletion", async || {
            let left = milan.get_opt("ConfigMap", REMOTE, "deleted").await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await?;
        self.until_added("last").await?;
        self.until_written(before, &EXPECTED).await?;

        let after = self.state().await?;
        after.has_only_changes(before)?;

        Ok(after)
    }

    /// Waits until the second virtual kubelet has made these writes since `before`, in any order, and none else was made.
    pub(super) async fn until_written(&self, before: &State, expected: &[&str]) -> Result<()> {
        until(Deadline::after(SOON), "the writes", async || {
            let [first, second] = before.writes_since(&self.scene)?;
            ensure!(first.is_empty(), "the first one writes: {first:?}");
            ensure!(second == expected, "{second:?}, not {expected:?}");
            Ok(())
        })
        .await
    }

    pub(super) async fn state(&self) -> Result<State> {
        State::of(&self.scene).await
    }

    /// Returns the holder of a Lease.
    pub(super) async fn holder(&self, lease: &str) -> Result<String> {
        let holder = self.lease(lease).await?["spec"]["holderIdentity"].clone();
        Ok(holder.as_str().context("no holder")?.to_owned())
    }

    pub(super) async fn until_held(
        &self,
        lease: &str,
        pod: &str,
        deadline: Deadline,
    ) -> Result<()> {
        until(deadline, "the holder of the Lease", async || {
            let holder = self.holder(lease).await?;
            ensure!(holder == pod, "{holder:?} holds {lease}, not {pod}");
            Ok(())
        })
        .await
    }

    /// Waits until the Lease of the provider is renewed.
    pub(super) async fn until_renewed(&self) -> Result<()> {
        let renewed = async || anyhow::Ok(self.lease(LEASE).await?["spec"]["renewTime"].clone());
        let before = renewed().await?;
        until(Deadline::after(SOON), "a renewal", async || {
            ensure!(renewed().await? != before, "it is not renewed");
            Ok(())
        })
        .await
    }

    async fn lease(&self, name: &str) -> Result<Value> {
        let tenant = self.scene.peering.rome.tenant_namespace();
        self.scene.rome.get("Lease", &tenant, name).await
    }
}

fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop"}, "data": {"key": value},
    })
}
