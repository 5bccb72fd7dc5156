//! The key of this cluster: created once, never replaced.

use super::objects::{AUTHENTICATION_KEYS, Local, PRIVATE_KEY, warn};
use control_api::labels;
use control_credentials::{ClusterKey, KeyType};
use control_runtime::{Action, Cluster, Env, Key, Plan, Ref, Write};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

/// Key of the public key in the Secret.
const PUBLIC_KEY: &str = "publicKey";

/// Plans the Secret with the key of this cluster.
pub(super) fn plan<I>(local: &Local<'_>, key_type: KeyType, env: &mut Env<'_>) -> Plan<I> {
    let mut plan = Plan::default();
    let key = Key::new(local.namespace, AUTHENTICATION_KEYS);
    let object = Ref::of::<Secret>(&Cluster::Local, &key);
    let Some(secret) = local.secrets.get(&key) else {
        match ClusterKey::generate(key_type, (env.random)()) {
            // If two leaders create it, one of them fails.
            Ok(generated) => plan
                .writes
                .push(Write::new(object, create(&key, &generated))),
            Err(error) => warn(&mut plan, object, ("InvalidClusterKey", error.to_string())),
        }
        return plan;
    };
    let data = |name: &str| secret.data.as_ref().and_then(|data| data.get(name));
    let remedy = "restore the Secret, or delete it and peer again";
    let Some(private) = data(PRIVATE_KEY) else {
        let message = format!("data.{PRIVATE_KEY} is missing: {remedy}");
        warn(&mut plan, object, ("InvalidClusterKey", message));
        return plan;
    };
    match ClusterKey::from_pem(&private.0) {
        Ok(parsed) => {
            let public = ByteString(parsed.public_key().to_pem().into_bytes());
            if data(PUBLIC_KEY) != Some(&public) {
                let patch = json!({"data": {PUBLIC_KEY: public}});
                plan.writes.push(Write::new(object, Action::Merge(patch)));
            }
        }
        Err(error) => {
            let message = format!("data.{PRIVATE_KEY}: {error}: {remedy}");
            warn(&mut plan, object, ("InvalidClusterKey", message));
        }
    }

    plan
}

fn create(key: &Key, generated: &ClusterKey) -> Action {
    Action::Create(json!({
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {labels::MANAGED: "true"},
        },
        "type": "Opaque",
        "data": {
            PRIVATE_KEY: ByteString(generated.to_pem().as_bytes().to_vec()),
            PUBLIC_KEY: ByteString(generated.public_key().to_pem().into_bytes()),
        },
    }))
}
