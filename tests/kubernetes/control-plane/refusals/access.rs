//! Requests to the virtual kubelet's API with forged users, and for pods of other nodes.

use super::scene::{Scene, pod};
use crate::upstream::offloading::process::ADDRESS;
use anyhow::{Context as _, Result, bail, ensure};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use kubernetes_lab::pki::Subject;
use serde_json::json;
use std::path::Path;

/// Headers by which an API server, or a proxy in front of one, names a user.
const FORGED: [(&str, &str); 4] = [
    ("x-remote-user", "admin"),
    ("x-remote-group", "system:masters"),
    ("impersonate-user", "admin"),
    ("impersonate-group", "system:masters"),
];

/// Each refused request ends in a status that names the cause.
pub(super) async fn others_are_refused(scene: &Scene) -> Result<()> {
    let rome = &scene.peering.rome;
    let mut elsewhere = pod("elsewhere", "1", &json!([]));
    elsewhere["spec"]["nodeName"] = json!("rome-worker");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "rome-worker"}});
    rome.apply(&node).await?;
    scene.rome.create(&elsewhere).await?;
    let other = "/containerLogs/shop/elsewhere/web";

    let own = rome.control_plane().kubeconfig();
    let administrator = client(&own, None).await?;
    let (code, text) = answer(&administrator, other).await?;
    let expected = "pod does not exist: shop/elsewhere on node milan";
    ensure!(code == 404 && text.contains(expected), "{code} {text}");

    let anonymous = client(&own, Some(AuthInfo::default())).await?;
    let (code, text) = answer(&anonymous, other).await?;
    ensure!(code == 401, "{code} {text}");
    // A user without rights, and an administrator of another authority.
    let subject = |user, group| Subject { user, group };
    let intern = rome
        .control_plane()
        .kubeconfig_as(subject("intern", None), rome.server())?;
    let (code, text) = answer(&client(&intern, None).await?, other).await?;
    ensure!(code == 403 && text.contains("intern"), "{code} {text}");
    let milan = &scene.peering.milan;
    let masters = subject("admin", Some("system:masters"));
    let forged = milan
        .control_plane()
        .kubeconfig_as(masters, milan.server())?;
    let (code, text) = answer(&client(&forged, None).await?, other).await?;
    ensure!(code == 401, "{code} {text}");

    Ok(())
}

/// Returns a client of the virtual kubelet with the credentials of a kubeconfig, or with others.
async fn client(kubeconfig: &Path, credentials: Option<AuthInfo>) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("the kubeconfig is invalid")?;
    config.cluster_url = format!("https://{ADDRESS}:10250").parse()?;
    config.accept_invalid_certs = true;
    if let Some(credentials) = credentials {
        config.auth_info = credentials;
    }

    Client::try_from(config).context("failed to create a client")
}

/// Sends a request with forged headers. Returns the status code and the text of the refusal.
async fn answer(client: &Client, path: &str) -> Result<(u16, String)> {
    let mut request = http::Request::get(path);
    for (name, value) in FORGED {
        request = request.header(name, value);
    }
    match client.request_text(request.body(Vec::new())?).await {
        Ok(text) => bail!("the request was accepted: {text}"),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message)),
        Err(error) => Err(error).context("no response"),
    }
}
