//! CertificateSigningRequests in the cache, and their approval. The controllers share one watch of all requests, because
//! virtual kubelets of upstream label theirs in no way.

use super::objects::label;
use control_api::{annotations, labels};
use control_runtime::{Action, Ref, Write};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};

/// Signer of the certificates of consumers.
pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Signer of the serving certificates of kubelets.
pub(crate) const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Label of the requests for consumers.
const LABEL: &str = labels::REMOTE_TENANT_CSR;

/// Clears the contents of requests that no controller decides about.
pub(crate) fn keep(mut request: CertificateSigningRequest) -> CertificateSigningRequest {
    let is_of_consumer =
        request.spec.signer_name == SIGNER && label(&request.metadata, LABEL) == Some("true");
    let is_of_kubelet = request.spec.signer_name == SERVING_SIGNER && !is_decided(&request);
    if !is_of_consumer && !is_of_kubelet {
        request.metadata.managed_fields = None;
        request.spec.request = ByteString::default();
        request.spec.extra = None;
        if let Some(status) = &mut request.status {
            status.certificate = None;
        }
    }

    request
}

/// Returns whether a request has a condition: it is approved or denied, or signing it failed.
pub(crate) fn is_decided(request: &CertificateSigningRequest) -> bool {
    let status = request.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());

    conditions.is_some_and(|conditions| !conditions.is_empty())
}

/// Returns the Secret that the request of a consumer is for.
pub(super) fn secret_of(request: &CertificateSigningRequest) -> Option<&str> {
    label(&request.metadata, LABEL).filter(|it| *it == "true")?;
    let annotations = request.metadata.annotations.as_ref()?;

    annotations
        .get(annotations::CERTIFICATE_SECRET)
        .map(String::as_str)
}

/// Approves a request in the version that was checked.
pub(crate) fn approval(
    object: Ref,
    request: &CertificateSigningRequest,
    (reason, message): (&str, &str),
) -> Write {
    let mut approved = request.clone();
    let status = approved.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..CertificateSigningRequestCondition::default()
    });
    let approved = serde_json::to_value(&approved).unwrap_or_default();
    let mut write = Write::new(object, Action::Update(approved)).subresource("approval");
    write.uid.clone_from(&request.metadata.uid);
    write
        .resource_version
        .clone_from(&request.metadata.resource_version);

    write
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn request(change: impl FnOnce(&mut Value)) -> CertificateSigningRequest {
        let mut request = json!({
            "metadata": {
                "labels": {"liqo.io/remote-tenant-csr": "true"},
                "annotations": {"liqo.io/certificate-secret": "peers/certificate"},
            },
            "spec": {"request": "TUFB", "signerName": SIGNER, "extra": {"a": ["b"]}},
            "status": {"certificate": "TUFB"},
        });
        change(&mut request);
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn only_requests_that_are_decided_here_are_kept_whole() {
        let is_whole = |change: fn(&mut Value)| {
            let request = request(change);
            keep(request.clone()) == request
        };

        assert!(is_whole(|_| {}));
        assert!(is_whole(
            |it| it["spec"]["signerName"] = json!(SERVING_SIGNER)
        ));
        assert!(!is_whole(|it| it["spec"]["signerName"] = json!("x")));
        assert!(!is_whole(|it| it["metadata"]["labels"] = json!({})));
        assert!(!is_whole(|it| {
            it["spec"]["signerName"] = json!(SERVING_SIGNER);
            it["status"]["conditions"] = json!([{"type": "Approved", "status": "True"}]);
        }));
        let cleared = keep(request(|it| it["spec"]["signerName"] = json!("x")));
        assert_eq!(cleared.spec.request, ByteString::default());
        assert_eq!(cleared.status.unwrap().certificate, None);
    }

    /// The requests of a Secret are deleted with it.
    #[test]
    fn a_request_without_label_is_of_no_secret() {
        assert_eq!(secret_of(&request(|_| {})), Some("peers/certificate"));
        for labels in [json!({}), json!({"liqo.io/remote-tenant-csr": "false"})] {
            let other = request(|it| it["metadata"]["labels"] = labels);
            assert_eq!(secret_of(&other), None);
        }
    }
}
