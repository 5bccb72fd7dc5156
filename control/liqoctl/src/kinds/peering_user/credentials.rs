//! The certificate of a peering user, and the authority of the API server's certificate.

use crate::cluster::{Cluster, FIELD_MANAGER};
use crate::wait::{Deadline, Found};
use crate::{failure, manager};
use anyhow::{Context as _, Result, bail};
use control_api::labels;
use control_credentials::{Certificate, ClusterKey, Subject, request};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Kubernetes' signer of client certificates.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// ConfigMap of each namespace with the certificate authority of the API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Has a certificate of `key` signed. Returns it as PEM.
///
/// # Errors
///
/// Returns an error with the remedy if the user exists, or if the cluster signs no certificate until the deadline.
pub(super) async fn issue(
    cluster: &Cluster,
    name: &str,
    subject: &Subject,
    key: &ClusterKey,
    deadline: Deadline,
) -> Result<Vec<u8>> {
    let api = Api::<CertificateSigningRequest>::all(cluster.client.clone());
    let csr = request::create(key, subject).context("failed to create the request")?;
    let object = cluster.with_metadata(manifest(name, csr));
    let object = serde_json::from_value(object)?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(error) if failure::is_conflict(&error) => bail!(
            "the user exists already (CertificateSigningRequest {name}): run `liqoctl delete peering-user` first"
        ),
        Err(error) => {
            let action = format!("create CertificateSigningRequest {name}");
            return Err(cluster.failed(&action)(error));
        }
    }
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let approval = Patch::Merge(json!({"status": {"conditions": [{
        "type": "Approved",
        "status": "True",
        "reason": "PeeringUserApproval",
        "message": "created by liqoctl generate peering-user",
    }]}}));
    api.patch_approval(name, &params, &approval)
        .await
        .map_err(cluster.failed(&format!("approve CertificateSigningRequest {name}")))?;
    deadline
        .until("signing the certificate", async || {
            let read = cluster.get(&api, "CertificateSigningRequest", name).await?;
            let status = read.and_then(|it| it.status);
            let Some(certificate) = status.and_then(|it| it.certificate) else {
                return Ok(Found::Missing(format!(
                    "the signer {SIGNER} of {} has signed no certificate",
                    cluster.place()
                )));
            };
            Certificate::parse(&certificate.0, subject, key.public_key())
                .context("the signer has signed another certificate")?;
            Ok(Found::Ready(certificate.0))
        })
        .await
}

fn manifest(name: &str, csr: String) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name, "labels": {labels::PEERING_USER_NAME: name}},
        "spec": {
            "request": ByteString(csr.into_bytes()),
            "signerName": SIGNER,
            "usages": ["digital signature", "key encipherment", "client auth"],
        },
    })
}

/// Deletes the request of a user's certificate.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn remove(cluster: &Cluster, name: &str) -> Result<()> {
    let api = Api::<CertificateSigningRequest>::all(cluster.client.clone());
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        // Kubernetes deletes it an hour after it was signed.
        Err(error) if failure::is_not_found(&error) => Ok(()),
        Err(error) => Err(cluster.failed("delete the CertificateSigningRequest")(
            error,
        )),
    }
}

/// Returns the PEM bundle with which clients verify the API server, or none if they trust its authority already.
///
/// # Errors
///
/// Returns an error if the bundle is missing or invalid.
pub(super) async fn authority(
    cluster: &Cluster,
    liqo: &str,
    manager: Option<&Deployment>,
) -> Result<Option<Vec<u8>>> {
    let argument = |flag| manager.and_then(|it| manager::argument(it, flag));
    if let Some(ca) = argument("--ca-override") {
        let bundle: ByteString =
            serde_json::from_value(ca.into()).context("--ca-override of the manager")?;
        return Ok(Some(bundle.0));
    }
    if argument("--trusted-ca").is_some_and(|it| it == "true") {
        return Ok(None);
    }
    let api = Api::<ConfigMap>::namespaced(cluster.client.clone(), liqo);
    let map = cluster.get(&api, "ConfigMap", ROOT_CA).await?;
    let bundle = map.and_then(|map| map.data?.remove("ca.crt"));
    let bundle = bundle.with_context(|| {
        format!(
            "ConfigMap {liqo}/{ROOT_CA} in {} has no ca.crt: kube-controller-manager creates it",
            cluster.place()
        )
    })?;
    Ok(Some(bundle.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_credentials::KeyType;

    #[test]
    fn the_request_is_upstreams() {
        let key = ClusterKey::generate(KeyType::Ed25519, [1; 32]).unwrap();
        let subject = Subject::peering_user("naples", [0xab; 16]);
        let csr = request::create(&key, &subject).unwrap();

        let object = manifest("liqo-peer-user-naples", csr);

        let expected = json!({
            "name": "liqo-peer-user-naples",
            "labels": {"liqo.io/peering-user-name": "liqo-peer-user-naples"},
        });
        assert_eq!(object["metadata"], expected);
        let object: CertificateSigningRequest = serde_json::from_value(object).unwrap();
        request::check(&object.spec.request.0, &subject, key.public_key()).unwrap();
        assert_eq!(object.spec.expiration_seconds, None);
    }
}
