//! The certificate of the agent.

use super::fixture::{Agent, Authority, Files};
use crate::metric_agent::serving::ServingCertificate;
use telemetry::http::Observed as _;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

const NAMES: &[&str] = &["liqo-metric-agent.liqo.svc"];

fn served(certificate: &ServingCertificate) -> Option<Vec<u8>> {
    Some(certificate.current()?.cert[0].to_vec())
}

fn der(pem: &str) -> Option<Vec<u8>> {
    Some(
        CertificateDer::from_pem_slice(pem.as_bytes())
            .unwrap()
            .to_vec(),
    )
}

#[tokio::test]
async fn a_renewed_certificate_is_served_and_one_without_its_key_never() {
    let cluster = Authority::new("kubernetes");
    let files = Files::new(&cluster);
    let certificate = ServingCertificate::new(files.settings().certificate);
    assert_eq!(served(&certificate), None);
    let [first, second] = [cluster.server(NAMES), cluster.server(NAMES)];
    files.write_pair(&first);
    certificate.load().await.unwrap();
    assert_eq!(served(&certificate), der(&first.0));

    // The kubelet replaces both files at a time, but they are read one after the other.
    files.write("tls.crt", &second.0);
    certificate.load().await.unwrap();
    assert_eq!(served(&certificate), der(&first.0));
    for content in [
        "",
        "absurd",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        files.write("tls.crt", content);
        certificate.load().await.unwrap();
        assert_eq!(served(&certificate), der(&first.0), "{content:?}");
    }
    std::fs::remove_file(files.folder.join("tls.crt")).unwrap();
    assert!(certificate.load().await.is_err());
    assert_eq!(served(&certificate), der(&first.0));

    files.write_pair(&second);
    certificate.load().await.unwrap();
    assert_eq!(served(&certificate), der(&second.0));
}

#[tokio::test]
async fn without_a_certificate_the_agent_is_not_ready() {
    let agent = Agent::start(|settings| {
        settings.certificate.certificate = "/nonexistent/tls.crt".into();
    })
    .await;
    let is_waiting = || {
        let reason = agent.state.ready().err();
        reason.is_some_and(|it| it.contains("no valid certificate yet"))
    };

    agent.until(is_waiting).await;

    assert_eq!(agent.state.healthy(), Ok(()));
}
