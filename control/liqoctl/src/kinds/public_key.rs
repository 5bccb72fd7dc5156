//! PublicKey: the WireGuard key of a peer's gateway.

use super::gateway::Gateway;
use crate::cluster::Cluster;
use crate::global::Global;
use crate::manifest::{self, NETWORKING};
use crate::output::{self, Format};
use crate::verbs::create::{Build, Common, Namespaces};
use crate::verbs::delete::Delete;
use crate::verbs::get::Get;
use crate::verbs::{Action, Run, Verb};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use control_api::{GatewayClient, GatewayServer, PublicKey, labels};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::Api;
use serde_json::{Value, json};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create>(
        Verb::Create,
        "Creates a PublicKey: the key of a peer's gateway.",
        "liqoctl create publickey milan -n liqo-tenant-milan --remote-cluster-id milan --public-key KEY",
    ),
    Action::new::<Generate>(
        Verb::Generate,
        "Prints the PublicKey of a gateway of this cluster, which a peer applies.",
        "liqoctl generate publickey -n liqo-tenant-milan --gateway-type client --gateway-name milan",
    ),
    Action::new::<Get<PublicKey>>(Verb::Get, "Lists PublicKeys.", "liqoctl get publickey"),
    Action::new::<Delete<PublicKey>>(
        Verb::Delete,
        "Deletes a PublicKey.",
        "liqoctl delete publickey milan -n liqo-tenant-milan",
    ),
];

/// Entry of a gateway's Secret with the public key.
const SECRET_ENTRY: &str = "publicKey";

/// A WireGuard public key. Invariant: 32 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(ByteString);

impl Key {
    const BYTES: usize = 32;

    /// Parses standard base64.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is no base64, or has another length.
    fn parse(text: &str) -> Result<Self, String> {
        let bytes: ByteString =
            serde_json::from_value(text.into()).map_err(|_| "it is not base64".to_owned())?;
        match bytes.0.len() {
            Self::BYTES => Ok(Self(bytes)),
            other => Err(format!("it has {other} bytes; a key has {}", Self::BYTES)),
        }
    }

    /// Returns the public key in the Secret of a gateway.
    ///
    /// # Errors
    ///
    /// Returns the end of a sentence about the Secret.
    pub(crate) fn of_secret(secret: &Secret) -> Result<Self, String> {
        let entry = secret.data.as_ref().and_then(|data| data.get(SECRET_ENTRY));
        match entry {
            Some(bytes) if bytes.0.len() == Self::BYTES => Ok(Self(bytes.clone())),
            Some(bytes) => Err(format!(
                "holds {} bytes as {SECRET_ENTRY}; a key has {}",
                bytes.0.len(),
                Self::BYTES
            )),
            None => Err(format!("has no {SECRET_ENTRY} yet")),
        }
    }
}

/// The gateway that owns a PublicKey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// `GatewayServer` or `GatewayClient`.
    pub(crate) kind: String,
    /// Name of the gateway.
    pub(crate) name: String,
    /// UID of the gateway.
    pub(crate) uid: String,
}

/// Returns the PublicKey of `peer`.
pub(crate) fn manifest(
    name: &str,
    namespace: Option<&str>,
    peer: &str,
    key: &Key,
    owner: Option<&Owner>,
) -> Value {
    let spec = json!({"publicKey": key.0});
    let mut object = manifest::object("PublicKey", name, namespace, peer, spec);
    object["metadata"]["labels"][labels::GATEWAY_RESOURCE] = "true".into();
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": NETWORKING,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
        }]);
    }
    object
}

/// Returns namespace and name of a gateway's Secret; `namespace` is the gateway's.
pub(crate) fn secret_name(
    reference: &ObjectReference,
    namespace: &str,
) -> Option<(String, String)> {
    let namespace = reference.namespace.as_deref().unwrap_or(namespace);
    Some((namespace.to_owned(), reference.name.clone()?))
}

/// Flags of `liqoctl create publickey`.
#[derive(Args, Debug)]
struct Create {
    #[command(flatten)]
    common: Common,

    /// The key in base64.
    #[arg(long, value_name = "BASE64", value_parser = Key::parse)]
    public_key: Key,
}

impl Build for Create {
    type Object = PublicKey;

    fn common(&self) -> &Common {
        &self.common
    }

    fn manifest(&self, namespaces: Namespaces<'_>) -> Value {
        let Common {
            name,
            remote_cluster_id,
            ..
        } = &self.common;
        let namespace = Some(namespaces.object);
        manifest(name, namespace, remote_cluster_id, &self.public_key, None)
    }

    fn wait(&self) -> bool {
        false
    }

    fn is_ready(_: &PublicKey) -> Result<(), String> {
        Ok(())
    }
}

/// Flags of `liqoctl generate publickey`.
#[derive(Args, Debug)]
struct Generate {
    /// The name of the GatewayServer or GatewayClient.
    #[arg(long, value_name = "NAME")]
    gateway_name: String,

    /// The role of the gateway.
    #[arg(long, value_name = "TYPE")]
    gateway_type: GatewayType,

    /// The output format, json or yaml.
    #[arg(long, short, default_value = "yaml", value_name = "FORMAT")]
    output: Format,
}

/// The role of a gateway.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum GatewayType {
    /// A GatewayServer.
    Server,
    /// A GatewayClient.
    Client,
}

impl Run for Generate {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let id = cluster.installation().await?.cluster_id;
        let key = match self.gateway_type {
            GatewayType::Server => key::<GatewayServer>(&cluster, &self.gateway_name).await?,
            GatewayType::Client => key::<GatewayClient>(&cluster, &self.gateway_name).await?,
        };
        let object = manifest(&id, None, &id, &key, None);
        output::print(self.output, &manifest::printed(object))
    }
}

/// Returns the public key of the gateway `name`.
async fn key<G: Gateway>(cluster: &Cluster, name: &str) -> Result<Key> {
    let namespace = &cluster.namespace;
    let api = Api::<G>::namespaced(cluster.client.clone(), namespace);
    let gateway = cluster.get(&api, &G::kind(&()), name).await?;
    let gateway = gateway.with_context(|| {
        format!(
            "there is no gateway {name} in namespace {namespace}: name the peer's namespace with -n"
        )
    })?;
    let secret = gateway.secret().and_then(|it| secret_name(it, namespace));
    let (namespace, secret) = secret.with_context(|| {
        format!("gateway {name} has no keys yet: wait for the controller-manager")
    })?;
    let api = Api::<Secret>::namespaced(cluster.client.clone(), &namespace);
    let Some(read) = cluster.get(&api, "Secret", &secret).await? else {
        bail!("Secret {namespace}/{secret} of gateway {name} does not exist");
    };
    Key::of_secret(&read).map_err(|wrong| anyhow!("Secret {namespace}/{secret} {wrong}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    const ZEROS: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn zeros() -> Key {
        Key::parse(ZEROS).unwrap()
    }

    #[test]
    fn a_key_has_32_bytes() {
        let secret = |data: Value| -> Secret { from_value(json!({"data": data})).unwrap() };
        let of_secret = |data| Key::of_secret(&secret(data));

        assert_eq!(
            Key::parse("AAAA").unwrap_err(),
            "it has 3 bytes; a key has 32"
        );
        assert!(Key::parse("?").is_err());
        assert_eq!(of_secret(json!({"publicKey": ZEROS})), Ok(zeros()));
        assert!(of_secret(json!({})).unwrap_err().contains("no publicKey"));
        assert!(
            of_secret(json!({"publicKey": "AAAA"}))
                .unwrap_err()
                .contains("3 bytes")
        );
    }

    #[test]
    fn the_manifest_equals_upstreams() {
        let object = manifest("pk", Some("default"), "milan", &zeros(), None);

        assert_eq!(
            manifest::yaml(object),
            "\
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
    networking.liqo.io/gateway-resource: \"true\"
  name: pk
  namespace: default
spec:
  publicKey: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
"
        );
    }

    #[test]
    fn the_owner_is_the_gateway() {
        let owner = Owner {
            kind: "GatewayClient".into(),
            name: "milan".into(),
            uid: "82003ad5-3325-4360-9a24-faa01fec5ba8".into(),
        };

        let object = manifest("milan", Some("a"), "milan", &zeros(), Some(&owner));

        let expected = json!([{
            "apiVersion": "networking.liqo.io/v1beta1",
            "kind": "GatewayClient",
            "name": "milan",
            "uid": "82003ad5-3325-4360-9a24-faa01fec5ba8",
        }]);
        assert_eq!(object["metadata"]["ownerReferences"], expected);
    }
}
