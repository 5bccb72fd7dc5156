//! Tests of admission webhooks: any at a loopback address, and those of the chart.

mod absence;
pub(crate) mod metrics;
pub(crate) mod server;

use crate::fixture::{Deadline, Fixture, SOON, Suite, code, config_map, parallel, until};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kubernetes_lab::pki::Subject;
use serde_json::json;
use server::Server;
use std::time::{Duration, Instant};
use tokio::time::timeout;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_webhook_refuses_an_object,
        a_request_waits_for_a_slow_webhook,
    );
    absence::add(suite);
}

async fn a_webhook_refuses_an_object(fixture: &'static Fixture) -> Result<()> {
    let api = fixture.config_maps("webhook-refusal").await?;
    let server = Server::start(false, Duration::ZERO).await?;
    register(fixture, "webhook-refusal", &server, &CONFIG_MAPS).await?;

    until(Deadline::after(SOON), "a refusal", async || {
        let refused = try_create(&api, "refused").await?;
        ensure!(code(refused)? == 400, "another code");
        Ok(())
    })
    .await
}

async fn a_request_waits_for_a_slow_webhook(fixture: &'static Fixture) -> Result<()> {
    let api = fixture.config_maps("webhook-delay").await?;
    let delay = Duration::from_secs(2);
    let server = Server::start(true, delay).await?;
    register(fixture, "webhook-delay", &server, &CONFIG_MAPS).await?;

    // The API server calls a new webhook only after a short time.
    until(Deadline::after(SOON), "a delay", async || {
        let start = Instant::now();
        try_create(&api, "slow").await??;
        ensure!(start.elapsed() >= delay, "{:?}", start.elapsed());
        Ok(())
    })
    .await
}

/// Creates a ConfigMap as a dry run, and returns the response.
async fn try_create(api: &Api<ConfigMap>, name: &str) -> Result<kube::Result<ConfigMap>> {
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object = config_map(&json!({"name": name}))?;
    Ok(api.create(&params, &object).await)
}

/// The requests that a webhook reviews.
pub(crate) struct Reviewed {
    /// Start of the names of the users that send them.
    pub(crate) user: &'static str,
    /// API group and version.
    pub(crate) api: (&'static str, &'static str),
    /// Resource, also a subresource such as `networks/status`.
    pub(crate) resource: &'static str,
    pub(crate) operation: &'static str,
}

/// The core group of the Kubernetes API.
pub(crate) const CORE: (&str, &str) = ("", "v1");

/// The controller manager creates `kube-root-ca.crt` in each namespace, which is not reviewed.
const CONFIG_MAPS: Reviewed = Reviewed {
    user: "admin",
    api: CORE,
    resource: "configmaps",
    operation: "CREATE",
};

/// Registers a webhook with the longest time-out for requests in a namespace.
pub(crate) async fn register(
    fixture: &Fixture,
    namespace: &str,
    server: &Server,
    reviewed: &Reviewed,
) -> Result<()> {
    let user = format!("request.userInfo.username.startsWith('{}')", reviewed.user);
    let object = json!({
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": "review.test.liqo.io",
            "clientConfig": {
                "url": server.url(),
                "caBundle": ByteString(server.certificate().into()),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "matchConditions": [{"name": "user", "expression": user}],
            "rules": [{
                "apiGroups": [reviewed.api.0], "apiVersions": [reviewed.api.1],
                "resources": [reviewed.resource],
                "operations": [reviewed.operation],
            }],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 30,
        }],
    });
    let object: ValidatingWebhookConfiguration = serde_json::from_value(object)?;
    let api = Api::all(fixture.control_plane.client().await?);
    api.create(&PostParams::default(), &object)
        .await
        .context("failed to register a webhook")?;

    Ok(())
}

/// Waits until the API server calls a webhook for Secrets. `user` is the start of the reviewed
/// users' names. A Secret `name` exists if the webhook reviews changes.
pub(crate) async fn until_called(
    fixture: &Fixture,
    namespace: &str,
    server: &Server,
    user: &str,
    name: &str,
) -> Result<()> {
    let subject = Subject {
        user: &format!("{user}-probe"),
        group: Some("system:masters"),
    };
    let client = fixture.control_plane.client_as(subject).await?;
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let params = PatchParams::apply("probe").dry_run();
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let patch = Patch::Apply(object);
    until(Deadline::after(SOON), "a call of the webhook", async || {
        // A reviewed request takes longer.
        let patched = secrets.patch(name, &params, &patch);
        drop(timeout(Duration::from_millis(200), patched).await);
        ensure!(server.calls() > 0, "no call");
        Ok(())
    })
    .await
}
