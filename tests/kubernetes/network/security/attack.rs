//! Requests of attackers.
//!
//! The administrator sends each request first, as a dry run, and must succeed: otherwise a request that
//! is refused because it is malformed would pass for one that is refused by a rule.

use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, Config};
use kubernetes_lab::cluster::Cluster;
use serde_json::Value;

/// What an attacker asks for.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Create(Value),
    /// A merge patch of an object; of its status if that is named.
    Merge {
        kind: &'static str,
        namespace: Option<String>,
        name: String,
        subresource: Option<&'static str>,
        patch: Value,
    },
    List {
        kind: &'static str,
        namespace: Option<String>,
    },
    Get {
        kind: &'static str,
        namespace: String,
        name: String,
    },
}

/// Which rule must refuse a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// RBAC: the user lacks the right.
    Rbac,
    /// The ValidatingAdmissionPolicy of this name.
    Policy(&'static str),
}

/// Who sends requests to a cluster.
pub(super) struct User {
    client: Client,
}

impl User {
    /// The administrator of a cluster.
    pub(super) async fn administrator(cluster: &Cluster) -> Result<Self> {
        let client = cluster.client().await?;
        Ok(Self { client })
    }

    /// A user of this name, with the rights that bindings give it.
    pub(super) async fn named(cluster: &Cluster, name: &str) -> Result<Self> {
        let mut config = config(cluster).await?;
        config.auth_info.impersonate = Some(name.to_owned());
        let client = Client::try_from(config)?;
        Ok(Self { client })
    }

    /// The holder of a token, and of nothing else.
    pub(super) async fn with_token(cluster: &Cluster, token: &str) -> Result<Self> {
        let mut config = config(cluster).await?;
        config.auth_info = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };
        let client = Client::try_from(config)?;
        Ok(Self { client })
    }

    /// Sends a request that changes nothing.
    pub(super) async fn may(&self, request: &Request) -> Result<()> {
        self.send(request, true)
            .await
            .with_context(|| format!("refused: {request:?}"))
    }

    /// Sends a request for good, after the administrator's dry run, and expects that `refusal` stops it.
    pub(super) async fn may_not(
        &self,
        administrator: &Self,
        request: &Request,
        refusal: Refusal,
    ) -> Result<()> {
        let valid = administrator.may(request).await;
        valid.context("the administrator must succeed, or the request shows nothing")?;

        self.is_refused(request, refusal).await
    }

    /// Sends a request for good, and expects that `refusal` stops it.
    pub(super) async fn is_refused(&self, request: &Request, refusal: Refusal) -> Result<()> {
        let error = match self.send(request, false).await {
            Ok(()) => anyhow::bail!("it was allowed: {request:?}"),
            Err(error) => error,
        };
        let kube::Error::Api(status) = &error else {
            return Err(error).with_context(|| format!("no answer: {request:?}"));
        };
        let message = &status.message;
        match refusal {
            Refusal::Rbac => {
                // Of a request, and of a binding that would give what its author does not have.
                let texts = [" cannot ", "attempting to grant RBAC permissions"];
                ensure!(
                    status.code == 403 && texts.iter().any(|text| message.contains(text)),
                    "not refused by RBAC: {request:?}: {status:?}"
                );
            }
            Refusal::Policy(name) => {
                let named = format!("ValidatingAdmissionPolicy '{name}'");
                ensure!(
                    [403, 422].contains(&status.code) && message.contains(&named),
                    "not refused by {name}: {request:?}: {status:?}"
                );
            }
        }

        Ok(())
    }

    async fn send(&self, request: &Request, dry_run: bool) -> Result<(), kube::Error> {
        match request {
            Request::Create(object) => {
                let kind = object["kind"].as_str().unwrap_or_default();
                let namespace = object["metadata"]["namespace"].as_str();
                let object: DynamicObject =
                    serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
                let params = PostParams {
                    dry_run,
                    ..PostParams::default()
                };
                let created = self.api(kind, namespace).create(&params, &object).await;
                created.map(drop)
            }
            Request::Merge {
                kind,
                namespace,
                name,
                subresource,
                patch,
            } => {
                let api = self.api(kind, namespace.as_deref());
                let params = PatchParams {
                    dry_run,
                    ..PatchParams::default()
                };
                let patch = Patch::Merge(patch);
                let patched = match subresource {
                    Some(subresource) => {
                        api.patch_subresource(subresource, name, &params, &patch)
                            .await
                    }
                    None => api.patch(name, &params, &patch).await,
                };
                patched.map(drop)
            }
            Request::List { kind, namespace } => {
                let api = self.api(kind, namespace.as_deref());
                api.list(&ListParams::default()).await.map(drop)
            }
            Request::Get {
                kind,
                namespace,
                name,
            } => self.api(kind, Some(namespace)).get(name).await.map(drop),
        }
    }

    fn api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = resource(kind);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }
}

async fn config(cluster: &Cluster) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.context("the cluster's kubeconfig is no use")
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "IP" => ("ipam.liqo.io", "v1alpha1"),
        "Configuration" | "GatewayServer" | "GatewayClient" | "PublicKey" => {
            ("networking.liqo.io", "v1beta1")
        }
        "RoleBinding" | "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "v1"),
        _ => ("", "v1"),
    };
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let plural = match kind {
        // The spelling is upstream's.
        "PublicKey" => "publickeies".to_owned(),
        _ => format!("{}s", kind.to_lowercase()),
    };

    ApiResource::from_gvk_with_plural(&gvk, &plural)
}
