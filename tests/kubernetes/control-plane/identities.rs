//! Tests of users: certificates, RBAC and the audit log.

use crate::fixture::{Deadline, Fixture, SOON, Suite, code, parallel, until};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kubernetes_lab::pki::Subject;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        an_approved_request_is_signed,
        a_client_is_identified_by_certificate_or_token,
        a_user_without_a_role_is_refused,
        the_audit_log_has_both_stages_of_a_request,
    );
}

async fn an_approved_request_is_signed(fixture: &'static Fixture) -> Result<()> {
    const NAME: &str = "signed";
    let api: Api<CertificateSigningRequest> = Api::all(fixture.control_plane.client().await?);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "caesar");
    let object = json!({
        "metadata": {"name": NAME},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
            "request": ByteString(params.serialize_request(&key)?.pem()?.into()),
        },
    });
    api.create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;

    let condition = json!({
        "type": "Approved", "status": "True", "reason": "Test", "message": "approved by a test",
    });
    let approval = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    api.patch_approval(NAME, &PatchParams::default(), &approval)
        .await?;

    let certificate = until(Deadline::after(SOON), "a certificate", async || {
        let status = api.get(NAME).await?.status.unwrap_or_default();
        status.certificate.context("no certificate")
    })
    .await?;
    ensure!(
        certificate.0.starts_with(b"-----BEGIN CERTIFICATE"),
        "no PEM"
    );
    Ok(())
}

async fn a_client_is_identified_by_certificate_or_token(fixture: &'static Fixture) -> Result<()> {
    fixture.namespace("identities").await?;
    let control_plane = &fixture.control_plane;
    let subject = Subject {
        user: "caesar",
        group: Some("romans"),
    };
    let who = async |client| -> Result<(String, Vec<String>)> {
        let api: Api<SelfSubjectReview> = Api::all(client);
        let review = api
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await?;
        let user = review
            .status
            .and_then(|it| it.user_info)
            .unwrap_or_default();
        Ok((
            user.username.unwrap_or_default(),
            user.groups.unwrap_or_default(),
        ))
    };

    let (name, groups) = who(control_plane.client_as(subject).await?).await?;
    ensure!(name == "caesar", "{name}");
    ensure!(groups.iter().any(|it| it == "romans"), "{groups:?}");
    // The controller manager creates the service account shortly after the namespace.
    until(Deadline::after(SOON), "a token", async || {
        let client = control_plane.client_of("identities", "default").await?;
        let (name, _) = who(client).await?;
        ensure!(name == "system:serviceaccount:identities:default", "{name}");
        Ok(())
    })
    .await
}

async fn a_user_without_a_role_is_refused(fixture: &'static Fixture) -> Result<()> {
    let subject = Subject {
        user: "gaul",
        group: None,
    };
    let client = fixture.control_plane.client_as(subject).await?;
    let api: Api<ConfigMap> = Api::namespaced(client, "default");

    ensure!(
        code(api.list(&ListParams::default()).await)? == 403,
        "another code"
    );
    Ok(())
}

async fn the_audit_log_has_both_stages_of_a_request(fixture: &'static Fixture) -> Result<()> {
    let api = fixture.config_maps("audit").await?;
    let log = fixture.control_plane.audit_log();
    let position = log.end()?;

    api.get_opt("missing").await?;

    until(Deadline::after(SOON), "two events", async || {
        let events = log.since(position)?;
        let of_request = events.iter().filter(|event| {
            let object = event.object_ref.clone().unwrap_or_default();
            object.namespace == "audit" && object.name == "missing"
        });
        let of_request: Vec<_> = of_request
            .map(|event| {
                let code = event.response_status.as_ref().map(|it| it.code);
                (event.stage.as_str(), event.verb.as_str(), code)
            })
            .collect();
        let expected = [
            ("RequestReceived", "get", None),
            ("ResponseComplete", "get", Some(404)),
        ];
        ensure!(of_request == expected, "{of_request:?}");
        Ok(())
    })
    .await
}
