//! API requests of attackers.
//!
//! The administrator sends each request first, as a dry run, which must succeed. Otherwise a
//! malformed request would look like a request that a rule refuses.

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, Config};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use serde_json::Value;

/// A request to the API server.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Create(Value),
    /// A merge patch of an object or of its subresource.
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
    Delete {
        kind: &'static str,
        namespace: String,
        name: String,
    },
}

/// The rule that must refuse a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// RBAC, because the user lacks the right.
    Rbac,
    /// The ValidatingAdmissionPolicy with this name.
    Policy(&'static str),
}

/// A user of a cluster, with a client that sends requests as this user.
pub(super) struct User {
    cluster: Cluster,
    client: Client,
}

impl User {
    /// Returns the administrator of a cluster.
    pub(super) async fn administrator(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            cluster: cluster.clone(),
            client: cluster.client().await?,
        })
    }

    /// Returns a user called `name`. RoleBindings to this name grant the user's rights.
    pub(super) async fn named(cluster: &Cluster, name: &str) -> Result<Self> {
        let mut config = config(cluster).await?;
        config.auth_info.impersonate = Some(name.to_owned());

        Ok(Self {
            cluster: cluster.clone(),
            client: Client::try_from(config)?,
        })
    }

    /// Returns the user that a token identifies.
    pub(super) async fn with_token(cluster: &Cluster, token: &str) -> Result<Self> {
        let mut config = config(cluster).await?;
        config.auth_info = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };

        Ok(Self {
            cluster: cluster.clone(),
            client: Client::try_from(config)?,
        })
    }

    /// Sends a request as a dry run, which must succeed.
    pub(super) async fn may(&self, request: &Request) -> Result<()> {
        self.send(request, true)
            .await
            .with_context(|| format!("refused: {request:?}"))
    }

    /// Sends a request after a dry run of the administrator, and expects `refusal`.
    pub(super) async fn may_not(
        &self,
        administrator: &Self,
        request: &Request,
        refusal: Refusal,
    ) -> Result<()> {
        let valid = administrator.may(request).await;
        valid.context("the request is refused for the administrator, too")?;

        self.is_refused(request, refusal).await
    }

    /// Sends a request, and expects `refusal`. If the request succeeds, a cleanup deletes the
    /// created object.
    pub(super) async fn is_refused(&self, request: &Request, refusal: Refusal) -> Result<()> {
        let error = match self.send(request, false).await {
            Ok(()) => {
                self.delete_after_test(request).await?;
                anyhow::bail!("it was allowed: {request:?}")
            }
            Err(error) => error,
        };
        let kube::Error::Api(status) = &error else {
            return Err(error).with_context(|| format!("no response: {request:?}"));
        };
        let message = &status.message;
        match refusal {
            Refusal::Rbac => {
                // RBAC refuses most requests with the first text. The second text is for bindings
                // that grant more rights than the user has.
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

    async fn delete_after_test(&self, request: &Request) -> Result<()> {
        let Request::Create(object) = request else {
            return Ok(());
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let namespace = object["metadata"]["namespace"].as_str();
        let administrator = Self::administrator(&self.cluster).await?;
        let api = administrator.api(&kind, namespace);
        cleanup::defer(format!("{kind} {name}"), async move || {
            api.delete(&name, &DeleteParams::default()).await?;
            Ok(())
        });

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
            Request::Delete {
                kind,
                namespace,
                name,
            } => {
                let params = DeleteParams {
                    dry_run,
                    ..DeleteParams::default()
                };
                let deleted = self.api(kind, Some(namespace)).delete(name, &params).await;
                deleted.map(drop)
            }
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
    config.context("the cluster's kubeconfig is invalid")
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "IP" => ("ipam.liqo.io", "v1alpha1"),
        "Configuration" | "GatewayServer" | "GatewayClient" | "PublicKey" => {
            ("networking.liqo.io", "v1beta1")
        }
        "EndpointSlice" => ("discovery.k8s.io", "v1"),
        "RoleBinding" | "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "v1"),
        _ => ("", "v1"),
    };
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let plural = match kind {
        // Upstream Liqo's CRD has this spelling.
        "PublicKey" => "publickeies".to_owned(),
        _ => format!("{}s", kind.to_lowercase()),
    };

    ApiResource::from_gvk_with_plural(&gvk, &plural)
}
