//! Authentication with two API servers in memory, which already contain the results of the controller managers.

use super::*;
use crate::state::State;
use crate::steps::Step as _;
use control_credentials::{ClusterKey, KeyType};
use fake_apiserver::{ApiServer, Front, Reply};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// Path of the consumer's tenant namespace.
const IN_ROME: &str = "/api/v1/namespaces/liqo-tenant-milan";

/// Path of the provider's tenant namespace.
const IN_MILAN: &str = "/api/v1/namespaces/liqo-tenant-rome";

/// Path of the Tenants in the provider's tenant namespace.
const TENANTS: &str = "/apis/authentication.liqo.io/v1beta1/namespaces/liqo-tenant-rome/tenants";

/// Two clusters whose API servers record the requests.
struct Clusters {
    pair: Pair,
    rome: ApiServer,
    milan: ApiServer,
    fronts: [Front; 2],
}

impl Clusters {
    /// Starts rome, the consumer, and milan, the provider. They have no tenant namespaces.
    fn start() -> Self {
        let (rome, milan) = (ApiServer::start(), ApiServer::start());
        let fronts = [&rome, &milan].map(|server| Front::start(server, |_| Reply::Forward));
        let pair = Pair::behind(&fronts[0], &fronts[1]);
        let clusters = Self {
            pair,
            rome,
            milan,
            fronts,
        };
        clusters.put_results();
        clusters
    }

    /// Stores the results of the controller managers.
    fn put_results(&self) {
        let key = ClusterKey::generate(KeyType::Ed25519, [1; 32]).unwrap();
        let data = json!({"privateKey": ByteString(key.to_pem().as_bytes().to_vec())});
        let path = "/api/v1/namespaces/liqo/secrets/authentication-keys";
        self.rome
            .put(path, object("authentication-keys", &[], "data", data));
        let status = json!({"kubeconfigSecretRef": {"name": "kubeconfig"}});
        let path = "/apis/authentication.liqo.io/v1beta1/namespaces/liqo-tenant-milan/identities/controlplane-milan";
        self.rome
            .put(path, object("controlplane-milan", &[], "status", status));
        let labels = [
            ("liqo.io/remote-cluster-id", "rome"),
            ("liqo.io/nonce", "true"),
        ];
        let data = json!({"nonce": ByteString(b"current".to_vec())});
        let path = format!("{IN_MILAN}/secrets/liqo-nonce");
        self.milan
            .put(&path, object("liqo-nonce", &labels, "data", data));
        let auth = json!({"apiServer": "https://milan:6443"});
        let status = json!({"authParams": auth, "tenantNamespace": "liqo-tenant-rome"});
        let path = format!("{TENANTS}/rome");
        self.milan
            .put(&path, object("rome", &labels[..1], "status", status));
    }

    /// Stores tenant namespaces, and in each a signed nonce of an earlier peering.
    fn put_earlier_peering(&self, is_labelled: bool) {
        for (server, path, peer) in [
            (&self.rome, IN_ROME, "milan"),
            (&self.milan, IN_MILAN, "rome"),
        ] {
            let labels = [
                ("liqo.io/remote-cluster-id", peer),
                ("liqo.io/tenant-namespace", "true"),
            ];
            let labels = if is_labelled { &labels[..] } else { &[] };
            server.put(
                path,
                object(&format!("liqo-tenant-{peer}"), labels, "spec", json!({})),
            );
            let labels = [
                ("liqo.io/remote-cluster-id", peer),
                ("liqo.io/signed-nonce", "true"),
            ];
            let data = json!({"nonce": ByteString(b"earlier".to_vec())});
            let secret = object("liqo-signed-nonce", &labels, "data", data);
            server.put(&format!("{path}/secrets/liqo-signed-nonce"), secret);
        }
    }

    /// Returns whether each cluster still has the signed nonce of an earlier peering.
    fn has_stale_nonces(&self) -> [bool; 2] {
        let has = |server: &ApiServer, path| {
            server
                .get(&format!("{path}/secrets/liqo-signed-nonce"))
                .is_some()
        };
        [has(&self.rome, IN_ROME), has(&self.milan, IN_MILAN)]
    }

    async fn authenticate(&self) {
        Runner::run(Deadline::after(TIMEOUT), async |runner| {
            let namespaces = Namespaces::ensure(runner, &self.pair).await?;
            authenticate(runner, &self.pair, &namespaces, &Route::default()).await
        })
        .await
        .unwrap();
    }

    /// Returns the paths of the lists that each cluster has received.
    fn lists(&self) -> [Vec<String>; 2] {
        let lists = |front: &Front| {
            let requests = front.requests().into_iter();
            let lists = requests.filter(|it| it.method == "GET" && !it.is_watch());
            let path = |target: String| target.split('?').next().unwrap().to_owned();
            lists.map(|it| path(it.target)).collect()
        };
        [lists(&self.fronts[0]), lists(&self.fronts[1])]
    }
}

fn object(name: &str, labels: &[(&str, &str)], field: &str, value: Value) -> Value {
    let labels: Value = labels.iter().copied().collect();
    let mut object = json!({"metadata": {"name": name, "labels": labels}, "spec": {}});
    object[field] = value;
    object
}

#[tokio::test]
async fn new_tenant_namespaces_are_not_read() {
    let clusters = Clusters::start();

    clusters.authenticate().await;

    // The lists before the namespaces are created.
    let namespaces = || vec!["/api/v1/namespaces".to_owned()];
    assert_eq!(clusters.lists(), [namespaces(), namespaces()]);
    let tenant = clusters.milan.get(&format!("{TENANTS}/rome")).unwrap();
    assert_eq!(tenant["spec"]["clusterID"], "rome");
}

#[tokio::test]
async fn existing_tenant_namespaces_are_read_and_stale_signed_nonces_are_removed() {
    for is_labelled in [true, false] {
        let clusters = Clusters::start();
        clusters.put_earlier_peering(is_labelled);

        clusters.authenticate().await;

        let namespaces = || "/api/v1/namespaces".to_owned();
        let in_rome = vec![namespaces(), format!("{IN_ROME}/secrets")];
        let secrets = format!("{IN_MILAN}/secrets");
        let in_milan = vec![namespaces(), secrets, TENANTS.to_owned()];
        let [mut of_rome, of_milan] = clusters.lists();
        // The nonce of the reverse direction, with which the provider's signed nonce is compared.
        assert_eq!(of_rome.pop(), Some(format!("{IN_ROME}/secrets")));
        assert_eq!([of_rome, of_milan], [in_rome, in_milan], "{is_labelled}");
        assert_eq!(clusters.has_stale_nonces(), [false; 2], "{is_labelled}");
    }
}

#[tokio::test]
async fn a_namespace_created_by_an_interrupted_command_is_read() {
    let clusters = Clusters::start();
    let interrupted = TenantNamespace::of(&clusters.pair.remote);
    interrupted.apply(&()).await.unwrap();
    assert!(interrupted.is_new());

    clusters.authenticate().await;

    let [of_rome, of_milan] = clusters.lists();
    assert_eq!((of_rome.len(), of_milan.len()), (1, 3), "{of_milan:?}");
}

#[tokio::test]
async fn an_unlabelled_namespace_that_is_being_deleted_blocks() {
    let clusters = Clusters::start();
    let mut namespace = object("liqo-tenant-milan", &[], "spec", json!({}));
    namespace["metadata"]["deletionTimestamp"] = "2026-11-21T08:15:18Z".into();
    clusters.rome.put(IN_ROME, namespace);
    let step = TenantNamespace::of(&clusters.pair.local);

    assert_eq!(step.observe(&()).await.unwrap(), State::Pending);
    step.apply(&()).await.unwrap();

    let state = step.observe(&()).await.unwrap();
    assert!(matches!(state, State::Blocked(_)), "{state:?}");
    assert!(!step.is_new());
}

#[tokio::test]
async fn a_namespace_without_the_written_labels_is_read_again() {
    let clusters = Clusters::start();
    let step = TenantNamespace::of(&clusters.pair.local);
    // As a webhook that removes labels.
    let reply = object("liqo-tenant-milan", &[], "spec", json!({})).to_string();
    clusters.fronts[0].set(move |head| match head.method.as_str() {
        "POST" => Reply::response("201 Created", "", &reply),
        _ => Reply::Forward,
    });

    step.apply(&()).await.unwrap();

    assert_eq!(step.observe(&()).await.unwrap(), State::Pending);
    assert!(!step.is_new());
}

#[test]
fn the_newest_warning_explains_a_refusal() {
    let event = |reason: &str, time: &str, seen: &str| -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": reason}, "reason": reason, "note": "why",
            "eventTime": time, "series": {"count": 2, "lastObservedTime": seen},
        }))
        .unwrap()
    };
    let events = [
        event(
            "NonceUsed",
            "2026-11-25T08:00:00.000000Z",
            "2026-11-25T10:00:00.000000Z",
        ),
        event(
            "InvalidCSR",
            "2026-11-25T09:00:00.000000Z",
            "2026-11-25T09:30:00.000000Z",
        ),
    ];

    assert_eq!(last_warning(&events), Some("NonceUsed: why".to_owned()));
    assert_eq!(last_warning(&[]), None);
}
