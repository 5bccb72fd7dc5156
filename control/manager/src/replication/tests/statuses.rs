//! A provider that writes hostile statuses. `control/runtime/tests/runtime/hostile.rs` tests its answers, and
//! `offloading/tests/hostile.rs` the parts of a status that a VirtualNode takes.

use super::identities;
use super::peering::{LOCAL, MOMENT, Peering, REMOTE, kubeconfig_of, local, milan, remote};
use control_api::{Identity, Renew, ResourceSlice};
use control_credentials::{ClusterKey, KeyType};
use control_runtime::{Cluster, Destinations, Key, RemoteConfig};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

/// `rome` with two providers: `milan`, which is hostile, and `naples`.
struct Victim {
    peering: Peering,
    /// The credentials that `milan` has issued first.
    issued: Value,
    /// Number of Events before the present case.
    seen: usize,
}

const NAPLES: &str = "liqo-tenant-naples";

impl Victim {
    fn new(seed: u64) -> Self {
        let mut peering = Peering::new(seed);
        peering.run(MOMENT);
        let identity = identities(&mut peering)("first");
        let server = peering.simulation.local();
        server.put::<Identity>(identity.clone());
        let labels =
            json!({"liqo.io/remote-cluster-id": "naples", "liqo.io/tenant-namespace": "true"});
        server.put::<Namespace>(json!({"metadata": {"name": NAPLES, "labels": labels}}));
        let role = Key::new(LOCAL, "liqo-controller-manager-tenant");
        let mut binding = server.get::<RoleBinding>(&role).unwrap().clone();
        binding["metadata"]["namespace"] = json!(NAPLES);
        server.put::<RoleBinding>(binding);
        let kubeconfig = kubeconfig_of("https://192.0.2.9:6443");
        server.put::<Secret>(json!({
            "metadata": {
                "name": "kubeconfig-controlplane-naples",
                "namespace": NAPLES,
                "labels": {"liqo.io/remote-cluster-id": "naples", "liqo.io/identity-type": "ControlPlane"},
                "annotations": {"liqo.io/remote-tenant-namespace": REMOTE},
            },
            "data": {"kubeconfig": ByteString(kubeconfig.into_bytes())},
        }));
        peering.simulation.cluster(&naples()).put_namespace(REMOTE);
        peering.put_slice("milan", "2");
        peering.run(MOMENT);
        peering.grant("milan");
        peering.run(MOMENT);
        let issued = identity["spec"]["authParams"].clone();
        let mut victim = Self {
            peering,
            issued,
            seen: 0,
        };
        victim.others_are_untouched("1");

        victim
    }

    /// Begins a case: the Events of earlier ones are not considered.
    fn begin(&mut self) {
        self.seen = self.peering.simulation.events(0).len();
    }

    /// Has `milan` renew the credentials of the control plane.
    fn renew(&mut self, parameters: &Value) {
        let server = self.peering.simulation.cluster(&milan());
        let key = remote("controlplane-milan");
        let mut renew = server.get::<Renew>(&key).unwrap().clone();
        renew["status"]["authParams"] = parameters.clone();
        server.put::<Renew>(renew);
        self.peering.run(MOMENT);
    }

    /// Has `milan` write the status of the ResourceSlice.
    fn put_status(&mut self, status: &Value) {
        let server = self.peering.simulation.cluster(&milan());
        let mut slice = server
            .get::<ResourceSlice>(&remote("milan"))
            .unwrap()
            .clone();
        slice["status"] = status.clone();
        server.put::<ResourceSlice>(slice);
        self.peering.run(MOMENT);
    }

    fn used(&mut self) -> Value {
        let server = self.peering.simulation.local();
        let identity = server.get::<Identity>(&local("controlplane-milan"));
        identity.unwrap()["spec"]["authParams"].clone()
    }

    fn kubeconfig(&mut self) -> String {
        let key = local("kubeconfig-controlplane-milan");
        let secret = self.peering.simulation.local().get::<Secret>(&key).unwrap();
        let text: ByteString =
            serde_json::from_value(secret["data"]["kubeconfig"].clone()).unwrap();
        String::from_utf8(text.0).unwrap()
    }

    fn notes(&self, reason: &str) -> Vec<String> {
        let events = self.peering.simulation.events(0).iter().skip(self.seen);
        let of_reason = events.filter(|event| event.reason == reason);
        of_reason.map(|event| event.note.clone()).collect()
    }

    /// Checks that a change for the other provider reaches it.
    fn others_are_untouched(&mut self, cpu: &str) {
        let server = self.peering.simulation.local();
        server.put::<ResourceSlice>(json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": "naples",
                "namespace": NAPLES,
                "labels": {
                    "liqo.io/remote-cluster-id": "naples",
                    "liqo.io/remoteID": "naples",
                    "liqo.io/replication": "true",
                },
            },
            "spec": {"class": "default", "resources": {"cpu": cpu}},
        }));
        self.peering.run(MOMENT);
        let replica = self.peering.simulation.cluster(&naples());
        let replica = replica.get::<ResourceSlice>(&remote("naples")).unwrap();
        assert_eq!(replica["spec"]["resources"]["cpu"], cpu);
    }

    fn ignores_proxy(&mut self, url: &Value) {
        let (used, kubeconfig) = (self.used(), self.kubeconfig());
        let mut parameters = self.issued.clone();
        parameters["proxyURL"] = url.clone();
        self.renew(&parameters);
        assert_eq!((self.used(), self.kubeconfig()), (used, kubeconfig));
    }

    /// Checks that credentials with this field are refused with Events, and that no other connection is affected. A proxy of
    /// the provider's is ignored: the consumer has chosen one, or none.
    fn refuses_parameter(&mut self, field: &str, value: &Value) {
        if field == "proxyURL" {
            self.ignores_proxy(value);
            return;
        }
        self.begin();
        let mut parameters = self.issued.clone();
        parameters[field] = value.clone();
        self.renew(&parameters);

        let shown: String = value.to_string().chars().take(80).collect();
        let what = format!("{field} {shown}");
        let text = self.kubeconfig();
        let is_refused = RemoteConfig::parse(&text, Destinations::Remote).is_err();
        let is_kept = text.contains("https://192.0.2.1:6443") && field == "apiServer";
        assert!(is_refused || is_kept, "{what}: {text}");
        let reasons = ["InvalidKubeconfig", "InvalidIdentity"];
        let notes: Vec<_> = reasons.iter().flat_map(|it| self.notes(it)).collect();
        assert!(!notes.is_empty(), "{what}");
        let changed = self.notes("APIServerChanged");
        assert!(
            changed.len() == 1 && changed[0].contains(field),
            "{what}: {changed:?}"
        );
        for note in notes.iter().chain(&changed) {
            assert!(!note.contains(['\n', '\u{1b}']), "{what}: {note}");
        }
        let cpu = (notes.len() + self.seen).to_string();
        self.others_are_untouched(&cpu);

        let issued = self.issued.clone();
        self.renew(&issued);
        self.peering.put_slice("milan", &cpu);
        self.peering.run(MOMENT);
        let replica = self.peering.replica("milan").unwrap();
        assert_eq!(replica["spec"]["resources"]["cpu"], cpu, "{what}");
    }
}

fn naples() -> Cluster {
    Cluster::remote("naples")
}

fn certificate_of(pair: &KeyPair) -> Value {
    let params = CertificateParams::new(["rome".to_owned()]).unwrap();
    json!(ByteString(
        params.self_signed(pair).unwrap().pem().into_bytes()
    ))
}

#[test]
fn certificates_that_are_not_of_this_cluster_are_refused_and_the_present_ones_stay() {
    let bytes = |text: &[u8]| json!(ByteString(text.to_vec()));
    let block = |label: &str, body: &str| {
        bytes(format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").as_bytes())
    };
    let other = KeyPair::generate().unwrap();
    let key = ClusterKey::generate(KeyType::Ed25519, [9; 32]).unwrap();
    let cases = [
        ("bytes that are no PEM", bytes(&[0, 255, 10, 13])),
        ("an empty text", bytes(b"")),
        ("PEM with invalid base64", block("CERTIFICATE", "!!!!")),
        ("PEM with invalid DER", block("CERTIFICATE", "AAECAwQ=")),
        ("a private key", bytes(key.to_pem().as_bytes())),
        ("a certificate of another key", certificate_of(&other)),
        (
            "a text without end",
            bytes(&b"-----BEGIN CERTIFICATE-----\n".repeat(4000)),
        ),
    ];
    let mut victim = Victim::new(20);
    for (number, (what, certificate)) in cases.into_iter().enumerate() {
        victim.begin();
        let (used, kubeconfig) = (victim.used(), victim.kubeconfig());
        let mut parameters = victim.issued.clone();
        parameters["signedCRT"] = certificate;
        parameters["apiServer"] = json!("https://192.0.2.66:6443");
        victim.renew(&parameters);

        assert_eq!(victim.used(), used, "{what}");
        assert_eq!(victim.kubeconfig(), kubeconfig, "{what}");
        let notes = victim.notes("InvalidCredentials");
        let is_named = notes
            .iter()
            .all(|note| note.contains("status.authParams.signedCRT"));
        assert!(is_named && !notes.is_empty(), "{what}: {notes:?}");
        assert!(notes.iter().all(|note| note.len() <= 1024), "{what}");
        assert_eq!(victim.notes("APIServerChanged"), [""; 0], "{what}");
        victim.others_are_untouched(&format!("{}", number + 2));

        // Valid credentials are taken over afterwards.
        let mut parameters = victim.issued.clone();
        parameters["apiServer"] = json!(format!("https://192.0.2.77:{}", 7000 + number));
        victim.renew(&parameters);
        assert_eq!(victim.used(), parameters, "{what}");
    }
}

#[test]
fn addresses_by_which_this_cluster_reaches_itself_are_not_connected_to() {
    let cases: [(&str, &str); 22] = [
        ("apiServer", "https://127.0.0.1:6443"),
        ("apiServer", "https://127.8.8.8"),
        ("apiServer", "https://0.0.0.0:6443"),
        ("apiServer", "https://[::1]:6443"),
        ("apiServer", "https://[::]:6443"),
        ("apiServer", "https://[::ffff:127.0.0.1]:6443"),
        ("apiServer", "https://[::ffff:a9fe:a9fe]"),
        ("apiServer", "https://[64:ff9b::a9fe:a9fe]"),
        ("apiServer", "https://169.254.169.254"),
        ("apiServer", "https://168.63.129.16"),
        ("apiServer", "https://[fd00:ec2::254]"),
        ("apiServer", "https://[fe80::1]:6443"),
        ("apiServer", "https://224.0.0.1:6443"),
        ("apiServer", "https://255.255.255.255"),
        ("apiServer", "https://localhost:6443"),
        ("apiServer", "https://api.localhost:6443"),
        ("apiServer", "https://192.0.2.1:6443@127.0.0.1:6443"),
        ("proxyURL", "http://127.0.0.1:8118"),
        ("proxyURL", "http://user:password@169.254.169.254:80"),
        ("proxyURL", "http://[::ffff:169.254.169.254]"),
        ("proxyURL", "socks5://192.0.2.2:1080"),
        ("proxyURL", "unix:///run/containerd.sock"),
    ];
    let mut victim = Victim::new(21);
    for (field, value) in cases {
        victim.refuses_parameter(field, &json!(value));
    }
}

#[test]
fn texts_that_are_no_address_or_certificate_are_not_used() {
    let bytes = |text: &[u8]| json!(ByteString(text.to_vec()));
    let mut victim = Victim::new(21);
    for (field, value) in [
        ("apiServer", json!("")),
        ("apiServer", json!("not an address\n")),
        ("apiServer", json!("file:///etc/shadow")),
        ("apiServer", json!("ftp://192.0.2.1")),
        ("apiServer", json!("https://192.0.2.1:99999")),
        (
            "apiServer",
            json!(format!("https://{}", "a".repeat(70_000))),
        ),
        (
            "ca",
            bytes(b"-----BEGIN CERTIFICATE-----\nAAECAw==\n-----END CERTIFICATE-----\n"),
        ),
        ("ca", bytes(&[0, 1, 2])),
        ("proxyURL", json!("\u{1b}[31m")),
    ] {
        victim.refuses_parameter(field, &value);
    }
}

#[test]
fn a_change_of_the_api_server_is_an_event_once_and_the_first_is_none() {
    let mut victim = Victim::new(22);
    assert_eq!(victim.notes("APIServerChanged"), [""; 0]);
    let mut parameters = victim.issued.clone();
    parameters["apiServer"] = json!("https://192.0.2.5:6443");
    victim.renew(&parameters);
    let notes = victim.notes("APIServerChanged");
    let expected = "apiServer from `https://192.0.2.1:6443` to `https://192.0.2.5:6443`";
    assert!(notes.len() == 1 && notes[0].contains(expected), "{notes:?}");

    let authority = CertificateParams::default()
        .self_signed(&KeyPair::generate().unwrap())
        .unwrap();
    parameters["ca"] = json!(ByteString(authority.pem().into_bytes()));
    victim.renew(&parameters);
    let notes = victim.notes("APIServerChanged");
    assert!(
        notes.len() == 2 && notes[1].contains("ca from `` to `"),
        "{notes:?}"
    );

    // A certificate that is renewed is no change of the API server.
    let renewed = identities(&mut victim.peering)("second");
    parameters["signedCRT"] = renewed["spec"]["authParams"]["signedCRT"].clone();
    victim.renew(&parameters);
    assert_eq!(victim.used(), parameters);
    assert_eq!(victim.notes("APIServerChanged").len(), 2);

    // The credentials of a ResourceSlice likewise.
    let granted = json!({
        "authParams": parameters,
        "conditions": [{"type": "Resources", "status": "Accepted"}],
    });
    victim.put_status(&granted);
    assert_eq!(victim.notes("APIServerChanged").len(), 2);
    let mut moved = granted;
    moved["authParams"]["apiServer"] = json!("https://192.0.2.6:6443");
    victim.put_status(&moved);
    assert_eq!(victim.notes("APIServerChanged").len(), 3);
}

#[test]
fn statuses_that_are_huge_or_of_another_form_are_not_taken_over() {
    let before = json!({
        "conditions": [{"type": "Resources", "status": "Accepted"}],
        "resources": {"cpu": "2"},
    });
    let many: serde_json::Map<_, _> = (0..20_000)
        .map(|number| (format!("example.com/resource-{number}"), json!("1")))
        .collect();
    let mut victim = Victim::new(23);
    for (what, status) in [
        ("resources that are a text", json!({"resources": "all"})),
        ("resources that are a list", json!({"resources": [1, 2, 3]})),
        (
            "a condition of unknown type",
            json!({"conditions": [{"type": "Root", "status": "Accepted"}]}),
        ),
        (
            "a condition of unknown status",
            json!({"conditions": [{"type": "Resources", "status": "Root"}]}),
        ),
        (
            "conditions that are an object",
            json!({"conditions": {"type": "Resources"}}),
        ),
        (
            "invalid base64",
            json!({"authParams": {"signedCRT": "%%%"}}),
        ),
        (
            "an address that is a number",
            json!({"authParams": {"apiServer": 1}}),
        ),
        ("a huge map", json!({"resources": many})),
        (
            "a huge text",
            json!({"nodeLabels": {"a": "x".repeat(300_000)}}),
        ),
        (
            "a huge list",
            json!({"storageClasses": vec![json!({"storageClassName": "x"}); 20_000]}),
        ),
    ] {
        victim.begin();
        victim.put_status(&status);
        let slice = victim.peering.slice("milan").unwrap();
        assert_eq!(slice["status"], before, "{what}");
        if what.contains("huge") {
            assert!(!victim.notes("StatusTooLarge").is_empty(), "{what}");
        }
        victim.others_are_untouched("2");
        victim.put_status(&json!({"conditions": before["conditions"], "resources": {"cpu": "1"}}));
        let slice = victim.peering.slice("milan").unwrap();
        assert_eq!(slice["status"]["resources"]["cpu"], "1", "{what}");
        victim.put_status(&before);
    }
}

#[test]
fn a_provider_that_changes_replicas_gains_nothing() {
    let mut victim = Victim::new(24);
    let original = victim.peering.slice("milan").unwrap();

    // The specification, labels, finalizers and owners of the replica, and its UID.
    let server = victim.peering.simulation.cluster(&milan());
    let mut changed = server
        .get::<ResourceSlice>(&remote("milan"))
        .unwrap()
        .clone();
    server.remove::<ResourceSlice>(&remote("milan"));
    changed["metadata"]["uid"] = json!("that of another object");
    changed["metadata"]["annotations"] = json!({"liqo.io/create-virtual-node": "false"});
    changed["metadata"]["finalizers"] = json!(["milan.example/for-ever"]);
    changed["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": LOCAL, "uid": "1"}]);
    changed["spec"]["resources"] = json!({"cpu": "1000"});
    changed["spec"]["class"] = json!("gold");
    server.put::<ResourceSlice>(changed);
    // An object that this cluster has not replicated, with the status of another one.
    let mut foreign = original.clone();
    foreign["metadata"] = json!({
        "name": "foreign", "namespace": REMOTE,
        "labels": {"liqo.io/originID": "rome", "liqo.io/replicated": "true"},
    });
    server.put::<ResourceSlice>(foreign);
    victim.peering.run(MOMENT * 5);

    let slice = victim.peering.slice("milan").unwrap();
    assert_eq!(slice["spec"], original["spec"]);
    assert_eq!(slice["metadata"]["uid"], original["metadata"]["uid"]);
    for field in ["annotations", "finalizers", "ownerReferences", "labels"] {
        assert_eq!(
            slice["metadata"][field], original["metadata"][field],
            "{field}"
        );
    }
    assert_eq!(
        victim.peering.replica("milan").unwrap()["spec"],
        original["spec"]
    );
    assert!(victim.peering.slice("foreign").is_none());
    assert!(victim.peering.replica("foreign").is_none());
    victim.others_are_untouched("2");
}
