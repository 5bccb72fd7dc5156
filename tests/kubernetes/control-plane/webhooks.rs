//! Tests of validating admission webhooks at a loopback address.

mod server;

use crate::fixture::{Deadline, Fixture, SOON, Suite, code, config_map, parallel, until};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use server::Server;
use std::time::{Duration, Instant};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_webhook_refuses_an_object,
        a_request_waits_for_a_slow_webhook,
    );
}

async fn a_webhook_refuses_an_object(fixture: &'static Fixture) -> Result<()> {
    let api = fixture.config_maps("webhook-refusal").await?;
    let server = Server::start(false, Duration::ZERO).await?;
    register(fixture, "webhook-refusal", &server).await?;

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
    register(fixture, "webhook-delay", &server).await?;

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

/// Registers a webhook with the longest time-out for new ConfigMaps of a namespace.
async fn register(fixture: &Fixture, namespace: &str, server: &Server) -> Result<()> {
    let object = json!({
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": "review.test.liqo.io",
            "clientConfig": {
                "url": server.url(),
                "caBundle": ByteString(server.certificate().into()),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            // The controller manager creates `kube-root-ca.crt` in each namespace.
            "matchConditions": [{"name": "user", "expression": "request.userInfo.username == 'admin'"}],
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE"],
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
