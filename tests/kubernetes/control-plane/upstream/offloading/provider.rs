//! The virtual kubelet of this project at a provider with upstream's controllers.

use super::controllers::{Controllers, NAMESPACE};
use super::process::{ADDRESS, VirtualKubelet};
use super::requests::{forbidden, of, writes};
use super::scene::{GOLDEN, Scene};
use super::virtual_node;
use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, LIQO, SOON, chart, until};
use crate::upstream::counterparts::peer;
use crate::upstream::golden::differences_of;
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubernetes_lab::control_plane::Options;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};

/// The user of the virtual kubelet in `rome`.
const ACCOUNT: &str = "system:serviceaccount:liqo-tenant-milan:milan";

/// The provider `milan` has no manager of ours: the test writes what upstream's controllers write. The virtual kubelet is a process
/// with the rights of the chart, and at the provider with those of upstream's chart.
pub(super) async fn a_virtual_kubelet_runs_pods_at_upstreams_provider(
    _: &'static Fixture,
) -> Result<()> {
    let options = Options::new(artifacts()?);
    let image = "--virtual-kubelet-image=localhost/liqo/virtual-kubelet:dev";
    let rome = Site::start_with("rome", "milan", &[image], options.clone()).await?;
    let kinds = ["VkOptionsTemplate", "Network"];
    rome.control_plane()
        .install(&chart()?, LIQO, &kinds)
        .await?;
    let milan = Site::start_unmanaged("milan", "rome", options).await?;
    peer(&rome, &milan).await?;
    let controllers = Controllers::install(&milan).await?;
    let kubelet = VirtualKubelet::start(&rome).await?;
    let test = Scene {
        rest: Rest::new(rome.client.clone(), "kubectl"),
        rome: &rome,
        milan: &milan,
        controllers,
    };

    virtual_node::is_upstreams(&test.rest, &kubelet.pod).await?;
    test.offload().await?;
    test.runs().await?;
    test.reflects().await?;
    test.shows_why_the_provider_refuses_a_pod().await?;
    test.reports_changes_that_upstream_does_not_apply().await?;
    virtual_node::reflects_endpoints(&rome, &test.controllers.rest).await?;
    test.ends().await?;
    test.withdraws().await?;
    kubelet.stop().await?;
    virtual_node::has_released_leases(&test.rest).await?;

    test.is_permitted().await
}

impl Scene<'_> {
    /// A pod becomes one ShadowPod, after the objects that it needs, and has the status of the pod at the provider.
    async fn runs(&self) -> Result<()> {
        self.create("demo", "web").await?;
        let mut expected = GOLDEN.shadow()?;
        // Upstream copies the annotation of `kubectl apply`, although it is about the pod of the consumer, and does not name the pod's UID.
        let local = self.rest.get("Pod", "demo", "web").await?;
        expected["metadata"]["annotations"] = json!({"liqo.io/pod-uid": local["metadata"]["uid"]});
        let rest = &self.controllers.rest;
        rest.until_checked(("ShadowPod", NAMESPACE, "web"), |found| {
            let differences = differences_of(found, &expected);
            ensure!(differences.is_empty(), "{differences:#?}");
            Ok(())
        })
        .await?;
        self.controllers.run("web").await?;

        let mut expected = GOLDEN.local_status()?;
        expected["hostIP"] = json!(ADDRESS);
        expected["hostIPs"] = json!([{"ip": ADDRESS}]);
        // Upstream reflects an address of another network, which may be that of a pod of this cluster.
        for field in ["podIP", "podIPs"] {
            expected.as_object_mut().context("no status")?.remove(field);
        }
        let local = self
            .rest
            .until_checked(("Pod", "demo", "web"), |found| {
                let differences = differences_of(&found["status"], &expected);
                ensure!(differences.is_empty(), "{differences:#?}");
                Ok(())
            })
            .await?;
        ensure!(local["metadata"]["labels"]["liqo.io/shadowPod"] == "true");
        self.is_prepared(&local).await?;

        self.is_written_once().await
    }

    /// The token is that of the pod.
    async fn is_prepared(&self, local: &Value) -> Result<()> {
        let mut expected = GOLDEN.reflected("secrets", "web-token")?;
        let uid = &local["metadata"]["uid"];
        let annotations = &mut expected["metadata"]["annotations"];
        annotations["offloading.liqo.io/service-account-for-pod-uid"] = uid.clone();
        let rest = &self.controllers.rest;
        let mut found = rest.get("Secret", NAMESPACE, "web-token").await?;
        for (path, object) in [("found", &mut found), ("expected", &mut expected)] {
            let data = object["data"].as_object_mut().context(path)?;
            let keys: Vec<_> = data.keys().cloned().collect();
            object["data"] = json!(keys);
            let annotations = object["metadata"]["annotations"].as_object_mut();
            let expiration = annotations
                .context(path)?
                .remove("offloading.liqo.io/service-account-expiration");
            ensure!(expiration.is_some(), "{path}");
        }
        let differences = differences_of(&found, &expected);
        ensure!(differences.is_empty(), "{differences:#?}");

        Ok(())
    }

    /// All objects are written once, and the ShadowPod last. The status of the pod is written at most once per change.
    async fn is_written_once(&self) -> Result<()> {
        until(Deadline::after(SOON), "the requests", async || {
            let writes = writes(self.milan, &GOLDEN.user())?;
            let pods = of(&writes, &["shadowpods"]);
            ensure!(pods == ["create shadowpods web"], "{pods:?}");
            let position = |name: &str| {
                let mut written = writes.iter().enumerate();
                let written = written.find(|(_, write)| write.ends_with(&format!(" {name}")));
                let written = written.map(|(position, _)| position);
                written.with_context(|| format!("{name} was not written: {writes:?}"))
            };
            let shadow = position("web")?;
            for name in [&GOLDEN.root_ca(), "web-token"] {
                ensure!(position(name)? < shadow, "{name} follows: {writes:?}");
            }
            for (at, write) in writes.iter().enumerate() {
                ensure!(!writes[..at].contains(write), "{write} twice");
            }
            Ok(())
        })
        .await?;
        let statuses = writes(self.rome, ACCOUNT)?;
        let statuses = of(&statuses, &["pods/status"]).len();
        // The first two statuses are those of the API server: at the creation, and at the binding.
        let changes = 2 + GOLDEN.remote_statuses()?.len();
        ensure!((1..=changes).contains(&statuses), "{statuses} statuses");

        Ok(())
    }

    /// Upstream's webhook refuses a ShadowPod that exceeds the Quota.
    async fn shows_why_the_provider_refuses_a_pod(&self) -> Result<()> {
        let name = "refuses-a-shadow-pod";
        let cause = "cpu quota usage exceeded";
        let group = "admissionregistration.k8s.io/v1";
        let rule = json!({
            "apiGroups": ["offloading.liqo.io"], "apiVersions": ["*"],
            "operations": ["CREATE"], "resources": ["shadowpods"],
        });
        let validation = json!({
            "expression": "object.metadata.name != 'refused'", "message": cause, "reason": "Forbidden",
        });
        for object in [
            json!({
                "apiVersion": group,
                "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": name},
                "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]},
            }),
            json!({
                "apiVersion": group,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": name},
                "spec": {"policyName": name, "validationActions": ["Deny"]},
            }),
        ] {
            self.milan.apply(&object).await?;
        }
        self.until_refusing("refused", cause).await?;
        self.create("demo", "refused").await?;
        self.until_phase("demo", "refused", ("Pending", Some("OffloadingBackOff")))
            .await?;
        self.until_event("refused", cause).await?;
        let pod = self.rest.get("Pod", "demo", "refused").await?;
        let message = pod["status"]["message"].as_str().unwrap_or_default();
        ensure!(message.contains(cause), "{pod}");

        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.milan.client.clone());
        bindings.delete(name, &DeleteParams::default()).await?;
        self.controllers.run("refused").await?;
        self.until_phase("demo", "refused", ("Running", None)).await
    }

    /// Waits until the API server of the provider applies a policy, which takes a moment.
    async fn until_refusing(&self, pod: &str, cause: &str) -> Result<()> {
        let mut shadow = GOLDEN.shadow()?;
        shadow["metadata"]["name"] = json!(pod);
        let tried = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        until(Deadline::after(SOON), "the policy", async || {
            let outcome = self.controllers.rest.create_with(&shadow, &tried).await;
            let error = outcome.err().context("it is accepted")?;
            ensure!(format!("{error:#}").contains(cause), "{error:#}");
            Ok(())
        })
        .await
    }

    async fn reports_changes_that_upstream_does_not_apply(&self) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.rome.client.clone(), "demo");
        let debugger = json!({"name": "debugger", "image": "busybox:1.36"});
        let patch = Patch::Strategic(json!({"spec": {"ephemeralContainers": [debugger]}}));
        let parameters = PatchParams::default();
        pods.patch_ephemeral_containers("web", &parameters, &patch)
            .await?;
        self.until_event("web", "does not start ephemeral containers (debugger)")
            .await?;
        let resources = json!({"requests": {"cpu": "20m"}});
        let containers = json!([{"name": "web", "resources": resources}]);
        let patch = Patch::Strategic(json!({"spec": {"containers": containers}}));
        pods.patch_subresource("resize", "web", &parameters, &patch)
            .await?;

        self.until_event("web", "does not resize containers (web)")
            .await
    }

    /// No request was forbidden for good. The audit log has a watch once it has ended.
    async fn is_permitted(&self) -> Result<()> {
        let user = GOLDEN.user();
        for (site, user) in [(self.rome, ACCOUNT), (self.milan, user.as_str())] {
            until(Deadline::after(SOON), "the rights", async || {
                let mut forbidden = forbidden(site, user)?;
                // Identifies the cluster where that is permitted.
                forbidden.remove("get namespaces kube-system");
                ensure!(forbidden.is_empty(), "{user}: {forbidden:?}");
                Ok(())
            })
            .await?;
        }

        Ok(())
    }
}
