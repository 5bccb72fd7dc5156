//! Tests of a validating admission webhook.

use super::{create, server};
use crate::fixture::{Clusters, Suite, parallel};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup::{self, Deferred};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde_json::{Value, json};

pub(super) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_webhook_decides_about_objects_of_its_namespace,
        no_object_is_stored_while_a_required_webhook_is_down,
    );
}

async fn a_webhook_decides_about_objects_of_its_namespace(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("webhook").await?;
    let other = clusters.namespace("webhook-other").await?;
    let authority = server::start(&namespace, REVIEW, None).await?;

    register(&namespace, &authority).await?;
    let expected = "admission webhook \"review.test.liqo.io\" denied the request: it is bad";
    refused(&namespace, "bad", expected).await?;
    store(&namespace, "good", "good").await?;
    store(&other, "bad", "bad").await?;

    let seen = namespace.kubectl(&["logs", "server"]).await?;
    ensure!(seen.contains("CREATE good by admin"), "{seen}");
    Ok(())
}

async fn no_object_is_stored_while_a_required_webhook_is_down(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("webhook-down").await?;
    let authority = server::start(&namespace, REVIEW, None).await?;
    namespace.kubectl(&["delete", "pod", "server"]).await?;

    let webhook = register(&namespace, &authority).await?;
    let expected = "failed calling webhook \"review.test.liqo.io\"";
    refused(&namespace, "good", expected).await?;

    webhook.run().await?;
    until(
        Deadline::after(SOON),
        "a ConfigMap to be stored",
        async || store(&namespace, "late", "good").await,
    )
    .await?;
    Ok(())
}

/// A script that denies objects whose label `reviewed` is not `good`.
const REVIEW: &str = r#"
field() { [[ $body =~ \"$1\":\"([^\"]*)\" ]] && echo "${BASH_REMATCH[1]}"; }
user=${body#*\"userInfo\":}
[[ $user =~ \"username\":\"([^\"]*)\" ]] && user=${BASH_REMATCH[1]}
label=$(field reviewed)
echo "$(field operation) $label by $user" >&2
if [ "$label" = good ]; then
  verdict='"allowed":true'
else
  verdict='"allowed":false,"status":{"message":"it is '$label'"}'
fi
answer='{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"'
answer+=',"response":{"uid":"'$(field uid)'",'$verdict'}}'
"#;

/// Registers the webhook for labelled ConfigMaps of this namespace only, so that other tests do not
/// depend on the webhook's server. Running the result unregisters the webhook.
async fn register(namespace: &Namespace, authority: &Value) -> Result<Deferred> {
    let name = namespace.name();
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "review.test.liqo.io",
            "clientConfig": {
                "caBundle": authority,
                "service": {"name": "server", "namespace": name},
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            "objectSelector": {"matchExpressions": [{"key": "reviewed", "operator": "Exists"}]},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "operations": ["CREATE"],
            }],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 5,
        }],
    });
    let cluster = namespace.clone();
    let webhook = cleanup::defer(format!("webhook {name}"), async move || {
        let kind = "validatingwebhookconfiguration";
        let delete = ["delete", kind, cluster.name(), "--ignore-not-found"];
        cluster.kubectl(&delete).await.map(drop)
    });
    namespace.apply(&configuration.to_string()).await?;

    Ok(webhook)
}

/// Creates a ConfigMap with the label `reviewed`.
async fn store(namespace: &Namespace, name: &str, label: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"reviewed": label}},
    });
    create(namespace, &object.to_string()).await.map(drop)
}

/// Creates ConfigMaps until the API server refuses one with this error. The API server calls a new
/// webhook only after a delay. Kube-proxy on the API server's node also programs the webhook's
/// Service only after a delay.
async fn refused(namespace: &Namespace, label: &str, expected: &str) -> Result<()> {
    let mut tries = 0;
    until(Deadline::after(SOON), expected, async || {
        tries += 1;
        let outcome = store(namespace, &format!("try-{tries}"), label).await;
        let error = format!("{:#}", outcome.err().context("it was stored")?);
        ensure!(error.contains(expected), "{error}");
        Ok(())
    })
    .await
}
