//! The controller with an API server in memory, under virtual time.

use super::controller::{CertificateController, Issue};
use super::issue::{Request, self_signed};
use super::request::CertificateType;
use super::serving::Serving;
use crate::server::authority::ClientAuthority;
use crate::server::tests::certificates::Authority;
use control_runtime::Key;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};

const MOMENT: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(3600);

struct Cluster {
    simulation: Simulation,
    serving: Serving,
    authority: ClientAuthority,
    signer: Authority,
}

impl Cluster {
    fn new(kind: CertificateType) -> Self {
        let (serving, authority) = (Serving::default(), ClientAuthority::default());
        let shared = (serving.clone(), authority.clone());
        let make = move || {
            let issue = Issue {
                request: Request::new,
                self_signed,
            };
            CertificateController::new(crate::side::settings(), kind, issue, shared.clone())
        };
        let mut simulation = Simulation::new(7).host(make);
        simulation.local().put_namespace("kube-system");
        simulation.pass(MOMENT);
        Self {
            simulation,
            serving,
            authority,
            signer: Authority::new("kubernetes"),
        }
    }

    fn requests(&mut self) -> Vec<Value> {
        let requests = self.simulation.local().all::<CertificateSigningRequest>();
        requests.into_iter().cloned().collect()
    }

    fn request(&mut self) -> Value {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests[0].clone()
    }

    fn set_status(&mut self, mut request: Value, status: &Value) {
        request["status"] = status.clone();
        self.simulation
            .local()
            .put::<CertificateSigningRequest>(request);
        self.simulation.pass(MOMENT);
    }

    /// Signs a request for a number of hours from now, as Kubernetes' signer does.
    fn sign(&mut self, request: &Value, hours: u64) {
        let text: k8s_openapi::ByteString =
            serde_json::from_value(request["spec"]["request"].clone()).unwrap();
        let text = String::from_utf8(text.0).unwrap();
        let now = self.simulation.time();
        let pem = self
            .signer
            .sign(&text, now, HOUR * u32::try_from(hours).unwrap());
        let certificate = k8s_openapi::ByteString(pem.into_bytes());
        self.set_status(request.clone(), &json!({"certificate": certificate}));
    }

    fn certificate(&self) -> CertificateDer<'static> {
        self.serving.current().expect("a certificate").cert[0].clone()
    }

    fn is_signed(&self) -> bool {
        let issuer = x509_issuer(&self.certificate());
        issuer.contains("CN=kubernetes")
    }
}

fn x509_issuer(der: &[u8]) -> String {
    use x509_cert::certificate::{CertificateInner, Rfc5280};
    use x509_cert::der::Decode as _;

    let certificate = CertificateInner::<Rfc5280>::from_der(der).unwrap();
    certificate.tbs_certificate().issuer().to_string()
}

#[test]
fn a_self_signed_certificate_is_served_until_the_request_is_signed() {
    let mut cluster = Cluster::new(CertificateType::Kubelet);
    assert!(!cluster.is_signed());
    let request = cluster.request();
    assert!(
        request["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("milan-")
    );
    let spec = &request["spec"];
    assert_eq!(spec["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(spec["usages"], json!(["digital signature", "server auth"]));
    cluster.simulation.pass(HOUR);
    assert_eq!(cluster.requests().len(), 1);
    cluster.set_status(
        request.clone(),
        &json!({"conditions": [{"type": "Approved", "status": "True"}]}),
    );
    assert!(!cluster.is_signed());

    cluster.sign(&request, 24);

    assert!(cluster.is_signed());
    assert_eq!(cluster.simulation.redundant().len(), 0);
}

#[test]
fn a_certificate_is_renewed_with_another_key_at_four_fifths_of_its_life() {
    let mut cluster = Cluster::new(CertificateType::Kubelet);
    let request = cluster.request();
    cluster.sign(&request, 10);
    let first = cluster.certificate();
    cluster.simulation.pass(HOUR * 7);
    assert_eq!(cluster.requests().len(), 1);

    cluster.simulation.pass(HOUR * 3 / 2);

    let requests = cluster.requests();
    assert_eq!(requests.len(), 2);
    let next = requests
        .iter()
        .find(|it| it["metadata"]["name"] != request["metadata"]["name"]);
    let next = next.unwrap().clone();
    assert_ne!(next["spec"]["request"], request["spec"]["request"]);
    assert_eq!(cluster.certificate(), first);
    cluster.sign(&next, 10);
    assert!(cluster.is_signed());
    assert_ne!(cluster.certificate(), first);
}

#[test]
fn a_certificate_that_was_not_renewed_is_replaced_when_it_expires() {
    let mut cluster = Cluster::new(CertificateType::Kubelet);
    let request = cluster.request();
    cluster.sign(&request, 10);

    cluster.simulation.pass(HOUR * 10 + MOMENT);

    assert!(!cluster.is_signed());
    assert_eq!(cluster.requests().len(), 2);
}

#[test]
fn a_request_that_is_denied_is_reported_and_followed_by_another_one() {
    let mut cluster = Cluster::new(CertificateType::Kubelet);
    let request = cluster.request();
    let denied = json!({"type": "Denied", "status": "True", "message": "another pod"});

    cluster.set_status(request, &json!({"conditions": [denied]}));

    let events = cluster.simulation.events(0);
    assert_eq!(events.len(), 1);
    assert!(
        events[0].note.contains("Denied: another pod"),
        "{}",
        events[0].note
    );
    assert_eq!(cluster.requests().len(), 1);
    cluster.simulation.pass(Duration::from_secs(310));
    assert_eq!(cluster.requests().len(), 2);
    assert!(!cluster.is_signed());
}

#[test]
fn a_certificate_of_another_key_or_time_is_not_served() {
    let mut cluster = Cluster::new(CertificateType::Kubelet);
    let request = cluster.request();
    let other = cluster.signer.client("other", &[]).certificate;
    let pem = crate::server::tests::certificates::pem(&other);
    let certificate = k8s_openapi::ByteString(pem.into_bytes());

    cluster.set_status(request, &json!({"certificate": certificate}));
    assert!(!cluster.is_signed());
    let note = &cluster.simulation.events(0)[0].note;
    assert!(note.contains("another key"), "{note}");

    cluster.simulation.pass(Duration::from_secs(310));
    let next = cluster.requests().pop().unwrap();
    cluster.sign(&next, 0);
    assert!(!cluster.is_signed());
}

#[test]
fn a_request_that_is_deleted_is_made_again() {
    let mut cluster = Cluster::new(CertificateType::Kubelet);
    let request = cluster.request();
    let key = Key::cluster(request["metadata"]["name"].as_str().unwrap());

    cluster
        .simulation
        .local()
        .remove::<CertificateSigningRequest>(&key);
    cluster.simulation.pass(MOMENT);

    assert_eq!(
        cluster.request()["spec"]["request"],
        request["spec"]["request"]
    );
}

#[test]
fn the_type_decides_about_the_signer() {
    let mut cluster = Cluster::new(CertificateType::Aws);
    assert_eq!(
        cluster.request()["spec"]["signerName"],
        "beta.eks.amazonaws.com/app-serving"
    );

    let mut cluster = Cluster::new(CertificateType::SelfSigned);
    let first = cluster.certificate();
    assert_eq!(cluster.requests().len(), 0);
    cluster.simulation.pass(HOUR * 24 * 300);
    assert_ne!(cluster.certificate(), first);
    assert_eq!(cluster.requests().len(), 0);
}

#[test]
fn the_authorities_of_clients_follow_the_config_map() {
    let mut cluster = Cluster::new(CertificateType::SelfSigned);
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let of_old = [old.client("admin", &[]).certificate];
    let put = |cluster: &mut Cluster, data: Value| {
        let metadata =
            json!({"name": "extension-apiserver-authentication", "namespace": "kube-system"});
        cluster
            .simulation
            .local()
            .put::<ConfigMap>(json!({"metadata": metadata, "data": data}));
        cluster.simulation.pass(MOMENT);
    };
    let verify = |cluster: &Cluster| cluster.authority.verify(&of_old, UnixTime::now()).is_ok();
    assert!(!verify(&cluster));

    put(&mut cluster, json!({"client-ca-file": old.pem()}));
    assert!(verify(&cluster));
    put(
        &mut cluster,
        json!({"requestheader-client-ca-file": new.pem()}),
    );
    assert!(verify(&cluster));
    put(&mut cluster, json!({"client-ca-file": new.pem()}));
    assert!(!verify(&cluster));
}
