//! Pods that wait for their tokens and the root CA.

use super::*;
use crate::reflection::tests::issuing::Server;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

/// Returns a pod with a token, and with the root CA of this cluster.
fn pod_with_token() -> Value {
    let sources = json!([
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt"}},
    ]);
    json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "nodeName": "milan",
            "containers": [{"name": "web", "image": "web:1"}],
            "volumes": [{"name": "api", "projected": {"sources": sources}}],
        },
        "status": {"phase": "Pending"},
    })
}

/// Reflects the root CA, as the leader among the virtual kubelets of the provider does.
fn put_root_ca(rome: &mut Side) {
    let labels =
        json!({"offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"});
    rome.provider().put::<ConfigMap>(json!({
        "metadata": {"name": "kube-root-ca.crt.rome", "namespace": "shop-rome", "labels": labels},
    }));
    rome.pass();
}

#[test]
fn a_pod_starts_when_its_token_and_the_root_ca_are_at_the_provider() {
    for is_first in [true, false] {
        let server = Server::new();
        server.lock().unwrap().is_refusing = is_first;
        let mut rome = Side::with_tokens(11, &server);
        rome.put_map("Accepted");
        rome.put::<Pod>(pod_with_token());
        rome.pass();
        assert_eq!(rome.shadow("web"), Value::Null);

        // One of both does not suffice.
        if is_first {
            put_root_ca(&mut rome);
        }
        assert_eq!(rome.shadow("web"), Value::Null, "{is_first}");
        if is_first {
            server.lock().unwrap().is_refusing = false;
            rome.simulation.pass(Duration::from_secs(20));
        } else {
            put_root_ca(&mut rome);
        }
        assert_ne!(rome.shadow("web"), Value::Null, "{is_first}");
        assert!(
            rome.provider()
                .get::<Secret>(&Key::new("shop-rome", "web-token"))
                .is_some()
        );
        assert_eq!(rome.writes::<ShadowPod>(), 1);
    }
}

#[test]
fn a_pod_whose_token_is_refused_waits_at_the_provider_after_half_a_minute() {
    let server = Server::new();
    server.lock().unwrap().is_refusing = true;
    let mut rome = Side::with_tokens(12, &server);
    rome.put_map("Accepted");
    rome.put::<Pod>(pod_with_token());
    rome.simulation.pass(Duration::from_secs(25));
    assert_eq!(rome.shadow("web"), Value::Null);

    rome.simulation.pass(Duration::from_secs(10));
    assert_ne!(rome.shadow("web"), Value::Null);
    let refused = |it: &String| it.starts_with("FailedSATokensReflection");
    assert!(rome.events().iter().any(refused), "{:?}", rome.events());
}
