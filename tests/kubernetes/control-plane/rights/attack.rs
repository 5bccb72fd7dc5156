//! API requests of attackers. All requests are dry runs.
//!
//! The administrator sends each request first, which must succeed. Otherwise a malformed request
//! would look like a request that a rule refuses.

use crate::fixture::{Deadline, until};
use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, Status};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::Value;
use std::time::Duration;

/// The limit for retries. The API server applies a new policy or RoleBinding after a short time.
const LIMIT: Duration = Duration::from_secs(10);

/// A request to the API server.
#[derive(Clone, Debug)]
pub(crate) enum Request {
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
        namespace: Option<String>,
        name: String,
    },
}

/// The rule that must refuse a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal<'a> {
    /// RBAC, because the user lacks the right.
    Rbac,
    /// The ValidatingAdmissionPolicy with this name.
    Policy(&'a str),
    /// The admission webhook with this name.
    Webhook(&'a str),
}

impl<'a> Refusal<'a> {
    /// Returns the rule of a name. The names of webhooks are in Liqo's domain.
    pub(crate) fn of(name: &'a str) -> Self {
        match name.ends_with(".liqo.io") {
            true => Self::Webhook(name),
            false => Self::Policy(name),
        }
    }
}

/// A user, with a client that sends requests as this user.
pub(crate) struct User(pub(crate) Client);

impl User {
    /// Sends a request, which must succeed.
    pub(crate) async fn may(&self, request: &Request) -> Result<()> {
        let what = format!("the right to {request:?}");
        until(Deadline::after(LIMIT), &what, async || {
            Ok(self.send(request).await?)
        })
        .await
    }

    /// Sends a request after the administrator, and expects `refusal`.
    pub(crate) async fn may_not(
        &self,
        administrator: &Self,
        request: &Request,
        refusal: Refusal<'_>,
    ) -> Result<()> {
        let valid = administrator.may(request).await;
        valid.context("the request is refused for the administrator, too")?;

        self.is_refused(request, refusal).await
    }

    /// Sends a request, and expects `refusal`.
    pub(crate) async fn is_refused(&self, request: &Request, refusal: Refusal<'_>) -> Result<()> {
        let what = format!("the refusal of {request:?}");
        until(Deadline::after(LIMIT), &what, async || {
            self.check_refusal(request, refusal).await
        })
        .await
    }

    async fn check_refusal(&self, request: &Request, refusal: Refusal<'_>) -> Result<()> {
        let Err(error) = self.send(request).await else {
            bail!("it was allowed");
        };
        let kube::Error::Api(status) = &error else {
            return Err(error).context("no response");
        };

        check_refusal(status, refusal).with_context(|| format!("{request:?}"))
    }

    async fn send(&self, request: &Request) -> Result<(), kube::Error> {
        match request {
            Request::Create(object) => {
                let kind = object["kind"].as_str().unwrap_or_default();
                let namespace = object["metadata"]["namespace"].as_str();
                let object: DynamicObject =
                    serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
                let params = PostParams {
                    dry_run: true,
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
                    dry_run: true,
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
                    dry_run: true,
                    ..DeleteParams::default()
                };
                let api = self.api(kind, namespace.as_deref());
                let deleted = api.delete(name, &params).await;
                deleted.map(drop)
            }
        }
    }

    fn api(&self, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = resource(kind);
        match namespace {
            Some(namespace) => Api::namespaced_with(self.0.clone(), namespace, &resource),
            None => Api::all_with(self.0.clone(), &resource),
        }
    }
}

/// Checks that a rule has refused a request.
pub(crate) fn check_refusal(status: &Status, refusal: Refusal<'_>) -> Result<()> {
    let message = &status.message;
    match refusal {
        Refusal::Rbac => {
            // RBAC refuses most requests with the first text. The second text is for bindings that grant more
            // rights than the user has.
            let texts = [" cannot ", "attempting to grant RBAC permissions"];
            ensure!(
                status.code == 403 && texts.iter().any(|text| message.contains(text)),
                "not refused by RBAC: {status:?}"
            );
        }
        Refusal::Policy(name) => {
            let named = format!("ValidatingAdmissionPolicy '{name}'");
            ensure!(
                [403, 422].contains(&status.code) && message.contains(&named),
                "not refused by {name}: {status:?}"
            );
        }
        Refusal::Webhook(name) => {
            let named = format!("admission webhook \"{name}\" denied the request: ");
            ensure!(
                status.code == 403 && message.starts_with(&named),
                "not refused by {name}: {status:?}"
            );
        }
    }

    Ok(())
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "IP" => ("ipam.liqo.io", "v1alpha1"),
        "Tenant" | "TenantPolicy" | "Identity" | "ResourceSlice" | "Renew" => {
            ("authentication.liqo.io", "v1beta1")
        }
        "Quota" | "VirtualNode" | "NamespaceOffloading" => ("offloading.liqo.io", "v1beta1"),
        "EndpointSlice" => ("discovery.k8s.io", "v1"),
        "Ingress" => ("networking.k8s.io", "v1"),
        "RoleBinding" | "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "v1"),
        _ => ("", "v1"),
    };
    let gvk = GroupVersionKind::gvk(group, version, kind);

    ApiResource::from_gvk(&gvk)
}
