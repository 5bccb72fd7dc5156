use super::*;
use control_api::labels;
use control_source::Watch;
use fake_apiserver::ApiServer;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// Maximum time until a change takes effect.
const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn an_unchanged_file_is_not_returned_again() {
    let place = Place::new("once");
    place.write(&["milan"]);
    let mut loader = place.loader();

    let first = loader.load(None).unwrap().unwrap();
    assert_eq!(first.planned.ranks()["milan"], 0);
    let mut again = || loader.load(Some(&first)).unwrap();
    assert!(again().is_none(), "no write");
    place.write(&["milan"]);
    assert!(again().is_none(), "write of equal content");

    place.write(&["milan", "paris"]);
    let second = again().unwrap();
    let (second, first) = (second.planned.peers, first.planned.peers);
    assert_eq!(second.len(), 2);
    assert!(std::sync::Arc::ptr_eq(
        &second.to_vec()[0],
        &first.to_vec()[0]
    ));
}

#[test]
fn an_invalid_file_is_an_error_until_it_is_corrected() {
    let place = Place::new("invalid");
    place.write(&["milan"]);
    let mut loader = place.loader();
    let served = loader.load(None).unwrap().unwrap();

    fs::write(place.file(), "kind: Nonsense").unwrap();
    for _ in 0..2 {
        let error = loader.load(Some(&served)).err().unwrap().to_string();
        assert!(error.contains("Nonsense"), "{error}");
    }

    place.write(&["milan"]);
    let loaded = loader.load(Some(&served)).unwrap();
    assert!(loaded.is_none(), "unchanged");
}

#[test]
fn a_new_key_is_read_when_the_file_is_touched() {
    let place = Place::new("key");
    place.write(&["milan"]);
    let mut loader = place.loader();
    let old = loader.load(None).unwrap().unwrap();

    fs::write(place.0.join("keys/gw-milan/privateKey"), [7; 32]).unwrap();
    place.write(&["milan"]);
    let new = loader.load(Some(&old)).unwrap().unwrap();

    assert_eq!(new.planned.fabric, old.planned.fabric);
    assert_eq!(new.planned.peers[0].local_private_key, [7; 32].into());
}

#[tokio::test]
async fn a_watched_key_that_changes_replaces_the_key_of_its_peer() {
    let server = ApiServer::start();
    let mut objects = control_fabric::parse(&text(&["milan", "paris"])).unwrap();
    control_fabric::plan(&mut objects).unwrap();
    for object in objects.to_yaml().split("\n---\n") {
        put(&server, serde_saphyr::from_str(object).unwrap());
    }
    for peer in ["milan", "paris"] {
        let labels = json!({labels::REMOTE_CLUSTER_ID: peer, labels::TENANT_NAMESPACE: "true"});
        let metadata = json!({"name": format!("liqo-{peer}"), "labels": labels});
        put(&server, json!({"kind": "Namespace", "metadata": metadata}));
    }
    let put_keys = |keys: Value| {
        let metadata = json!({"name": "liqo-gateway-keys", "namespace": "liqo"});
        let secret = json!({"kind": "Secret", "metadata": metadata, "data": keys});
        put(&server, secret);
    };
    // Base64 of 32 zeros, and of 32 bytes 255.
    let (zeros, ones) = (format!("{:A<43}=", ""), format!("{:/<42}8=", ""));
    put_keys(json!({"milan": zeros, "paris": zeros}));
    let config = kube::Config::new(server.url().parse().unwrap());
    let metrics = Metrics::new(&mut Registry::default());
    let watch = Watch::with(&config, "liqo", Scope::Gateway, &metrics, |_| Ok(()));
    let mut watch = watch.unwrap();
    watch.wait_until_complete().await;
    let mut loader = Loader {
        source: Source::Cluster(Box::new(watch)),
        keys: KeyStore::Source,
    };
    let old = loader.load(None).unwrap().unwrap();
    assert_eq!(old.planned.peers[0].local_private_key, [0; 32].into());

    put_keys(json!({"milan": ones}));
    let changed = async {
        loop {
            loader.changed().await;
            if let Some(new) = loader.load(Some(&old)).unwrap() {
                return new;
            }
        }
    };
    let new = tokio::time::timeout(DEADLINE, changed).await.unwrap();

    let peers: Vec<_> = new.planned.peers.iter().collect();
    assert_eq!(peers.len(), 1, "{:?}", new.unserved);
    assert_eq!(peers[0].cluster_id, "milan");
    assert_eq!(peers[0].local_private_key, [255; 32].into());
    assert!(new.unserved_peers.contains_key("paris"));
}

/// Puts an object, whose path depends on its kind.
fn put(server: &ApiServer, object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let prefix = match text(&object["apiVersion"]).as_str() {
        "" | "v1" => "/api/v1".to_owned(),
        group => format!("/apis/{group}"),
    };
    let namespace = match text(&object["metadata"]["namespace"]).as_str() {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let plural = match text(&object["kind"]).as_str() {
        "PublicKey" => "publickeies".to_owned(), // As upstream's CRD spells it.
        kind => kind.to_lowercase() + "s",
    };
    let name = text(&object["metadata"]["name"]);
    server.put(&format!("{prefix}{namespace}/{plural}/{name}"), object);
}

#[test]
fn a_missing_key_names_its_gateway() {
    let place = Place::new("missing");
    place.write(&["milan"]);
    fs::remove_dir_all(place.0.join("keys/gw-milan")).unwrap();

    let error = place.loader().load(None).err().unwrap();

    assert!(matches!(error, Error::Key(_)), "{error}");
}

#[test]
fn a_gateway_never_changes_its_cluster() {
    let place = Place::new("cluster");
    place.write(&["milan"]);
    let mut loader = place.loader();
    let served = loader.load(None).unwrap();

    let text = fs::read_to_string(place.file()).unwrap();
    fs::write(
        place.file(),
        text.replace("CLUSTER_ID: rome", "CLUSTER_ID: oslo"),
    )
    .unwrap();

    let loaded = loader.load(served.as_ref());
    assert!(matches!(loaded, Err(Error::OtherCluster { .. })));
}

#[test]
fn tunnelled_destinations_are_the_remapped_prefixes_of_the_peers() {
    let place = Place::new("tunnelled");
    place.write(&["milan", "paris"]);
    let mut desired = place.loader().load(None).unwrap().unwrap();
    let ip = control_fabric::MappedIp {
        name: "pod".to_owned(),
        namespace: "milan".to_owned(),
        spec_ip: [10, 101, 7, 7].into(),
        status_ip: [10, 70, 0, 9].into(),
        masquerade: false,
        target: control_fabric::Target::Remote {
            cluster_id: "milan".to_owned(),
            original: [10, 244, 7, 7].into(),
        },
    };
    desired.planned.fabric.ips.push(ip);

    let tunnelled = desired.planned.tunnelled();

    for peer in &desired.planned.fabric.peers {
        for remap in peer.pods.iter().chain(&peer.external) {
            assert!(tunnelled.contains(&remap.to()));
        }
    }
    assert!(tunnelled.contains(&"10.70.0.9/32".parse().unwrap()));
    assert!(
        !tunnelled.contains(&"10.244.0.0/16".parse().unwrap()),
        "our own pods"
    );
}

#[test]
fn a_missing_file_is_named() {
    let place = Place::new("nofile");

    let error = place.loader().load(None).err().unwrap().to_string();

    assert!(error.contains("fabric.yaml"), "{error}");
}

/// A temporary directory with a fabric file and private keys.
pub(in crate::shell) struct Place(PathBuf);

impl Place {
    pub(in crate::shell) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lq-desired-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("keys")).unwrap();
        Self(path)
    }

    pub(in crate::shell) fn file(&self) -> PathBuf {
        self.0.join("fabric.yaml")
    }

    pub(in crate::shell) fn loader(&self) -> Loader {
        Loader::of_files(&self.file(), &self.0.join("keys"))
    }

    pub(in crate::shell) fn write(&self, peers: &[&str]) {
        self.write_with(peers, "");
    }

    /// Writes the file with further objects.
    pub(in crate::shell) fn write_with(&self, peers: &[&str], objects: &str) {
        for peer in peers {
            let directory = self.0.join(format!("keys/gw-{peer}"));
            if !directory.exists() {
                keys::generate(&directory).unwrap();
            }
        }
        let mut objects = control_fabric::parse(&(text(peers) + objects)).unwrap();
        control_fabric::plan(&mut objects).unwrap();
        fs::write(self.file(), objects.to_yaml()).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(peers: &[&str]) -> String {
    const CLUSTER: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: id, namespace: liqo, labels: {app.kubernetes.io/name: clusterid-configmap}}
data: {CLUSTER_ID: rome}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: pods, namespace: liqo, labels: {ipam.liqo.io/network-type: pod-cidr}}
spec: {cidr: 10.244.0.0/16}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: external, namespace: liqo, labels: {ipam.liqo.io/network-type: external-cidr}}
spec: {cidr: 10.70.0.0/16}
";
    const PEER: &str = "
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: ID, namespace: liqo-ID, labels: {liqo.io/remote-cluster-id: ID}}
spec: {remote: {cidr: {pod: [10.244.0.0/16], external: [10.70.0.0/16]}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: ID, namespace: liqo-ID, labels: {liqo.io/remote-cluster-id: ID}}
spec: {mtu: 1340, endpoint: {port: 51840}}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata: {name: ID, namespace: liqo-ID, labels: {liqo.io/remote-cluster-id: ID}}
spec: {publicKey: KEY}
";
    peers.iter().fold(CLUSTER.to_owned(), |text, id| {
        let key = format!("{id:A<43}="); // Base64 of 32 bytes, different for each peer.
        text + &PEER.replace("ID", id).replace("KEY", &key)
    })
}
