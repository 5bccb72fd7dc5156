//! Tests of certificate signing requests.

use super::refusal;
use crate::fixture::{Clusters, Suite, parallel, scratch};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kubernetes_lab::cleanup;
use kubernetes_lab::pki;
use kubernetes_lab::wait::{Deadline, SOON, until};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;
use std::path::Path;
use std::process::Command;

pub(super) fn add(suite: &mut Suite) {
    parallel!(suite, a_signed_certificate_authenticates_a_user);
}

async fn a_signed_certificate_authenticates_a_user(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("certificate").await?;
    let requests: Api<CertificateSigningRequest> = Api::all(namespace.client().clone());
    let cluster = namespace.clone();
    cleanup::defer(format!("CSR {NAME}"), async move || {
        let delete = ["delete", "csr", NAME, "--ignore-not-found"];
        cluster.kubectl(&delete).await.map(drop)
    });
    let (key, request) = request()?;

    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": NAME},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            "expirationSeconds": 3600,
            "request": ByteString(request.into()),
        },
    });
    namespace.apply(&object.to_string()).await?;
    let unsigned = requests
        .get(NAME)
        .await?
        .status
        .and_then(|it| it.certificate);
    ensure!(unsigned.is_none(), "signed without approval");
    namespace.kubectl(&["certificate", "approve", NAME]).await?;
    let certificate = until(Deadline::after(SOON), "a certificate", async || {
        let status = requests.get(NAME).await?.status.unwrap_or_default();
        status.certificate.context("no certificate")
    })
    .await?;

    let folder = scratch(NAME)?;
    std::fs::write(folder.join("user.crt"), &certificate.0).context("failed to write")?;
    std::fs::write(folder.join("user.key"), key).context("failed to write")?;
    let user = as_user(
        clusters,
        &folder,
        &["auth", "whoami", "-o", "jsonpath={.status.userInfo}"],
    )?;
    ensure!(user.contains("\"username\":\"caesar\""), "{user}");
    ensure!(user.contains("\"gauls\""), "{user}");
    let refused = refusal(as_user(clusters, &folder, &["get", "pods"]))?;
    let expected = "User \"caesar\" cannot list resource \"pods\"";
    ensure!(refused.contains(expected), "{refused}");
    Ok(())
}

const NAME: &str = "it-caesar";

/// Returns a new private key and its certificate signing request.
fn request() -> Result<(String, String)> {
    let key = KeyPair::generate().context("failed to generate a key")?;
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "gauls");
    params.distinguished_name.push(DnType::CommonName, "caesar");
    let request = params
        .serialize_request(&key)
        .and_then(|request| request.pem())
        .context("failed to sign a request")?;

    Ok((key.serialize_pem(), request))
}

/// Runs `kubectl` without a kubeconfig, with the certificate and the key in `folder`.
fn as_user(clusters: &Clusters, folder: &Path, words: &[&str]) -> Result<String> {
    let cluster = &clusters.rome;
    let output = Command::new(cluster.artifacts().program("kubectl"))
        .arg("--kubeconfig=/dev/null")
        .args(["--server", &pki::server(&cluster.node_specs()?)])
        .arg("--certificate-authority")
        .arg(cluster.folder().join("pki/ca.crt"))
        .arg("--client-certificate")
        .arg(folder.join("user.crt"))
        .arg("--client-key")
        .arg(folder.join("user.key"))
        .args(words)
        .output()
        .context("failed to start kubectl")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");

    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
