//! Tenant: a consumer of this cluster, with its key and the signed nonce.

use crate::cluster::Cluster;
use crate::global::Global;
use crate::manifest::{self, AUTHENTICATION};
use crate::observed::Select;
use crate::output::{self, Format};
use crate::steps::{Lines, ObjectStep, Progress, Runner, lines};
use crate::verbs::{Action, Run, Verb};
use crate::wait::Deadline;
use crate::{objects, parse};
use anyhow::{Context as _, Result};
use clap::Args;
use control_api::Tenant;
use control_api::authentication::auth_params::AuthParams;
use control_credentials::{Certificate, ClusterKey, PublicKey, Subject, request};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use std::time::Duration;

mod condition;

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Generate>(
        Verb::Generate,
        "Prints the Tenant of this cluster, which a provider applies.",
        "liqoctl generate tenant --remote-cluster-id milan --nonce NONCE | kubectl --kubeconfig milan.yaml apply -f -",
    ),
    Action::new::<condition::Activate>(
        Verb::Activate,
        "Activates a tenant: its consumer may use resources again.",
        "liqoctl activate tenant rome",
    ),
    Action::new::<condition::Cordon>(
        Verb::Cordon,
        "Cordons a tenant: its consumer keeps its resources and gets no further ones.",
        "liqoctl cordon tenant rome",
    ),
    Action::new::<condition::Uncordon>(
        Verb::Uncordon,
        "Uncordons a tenant: its consumer may get further resources again.",
        "liqoctl uncordon tenant rome",
    ),
    Action::new::<condition::Drain>(
        Verb::Drain,
        "Drains a tenant: its consumer loses its resources and gets no further ones.",
        "liqoctl drain tenant rome",
    ),
];

/// Name of the Secret with the key of a cluster, in Liqo's namespace.
const AUTHENTICATION_KEYS: &str = "authentication-keys";

/// Limit of `liqoctl generate tenant`.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Entry of the Secret with the private key.
const PRIVATE_KEY: &str = "privateKey";

/// The proof that a consumer holds its key, and its request of a certificate.
pub(crate) struct Proof {
    key: PublicKey,
    /// PEM text.
    csr: String,
    signature: Vec<u8>,
}

impl Proof {
    /// Signs the nonce of a provider with the key of the cluster `id`.
    ///
    /// # Errors
    ///
    /// Returns an error if the cluster ID is no valid name of a user, or if the library fails.
    pub(crate) fn new(key: &ClusterKey, id: &str, nonce: &[u8]) -> Result<Self> {
        let subject = Subject::control_plane(id);
        Ok(Self {
            key: key.public_key().clone(),
            csr: request::create(key, &subject).context("failed to create the request")?,
            signature: key.sign(nonce).context("failed to sign the nonce")?,
        })
    }
}

/// Returns the step that waits for the key of a cluster, which its controller manager creates when it starts.
pub(crate) fn key_step<'a>(cluster: &'a Cluster, liqo: &str) -> ObjectStep<'a, Secret, ClusterKey> {
    let lines = Lines {
        scope: cluster.side,
        apply: None,
        wait: None,
        goal: "reading the key of the cluster (does the controller-manager run, with the chart's value authentication.enabled?)",
    };
    let name = AUTHENTICATION_KEYS.to_owned();
    ObjectStep::wait(cluster, lines, liqo, Select::Name(name), key)
}

fn key(secret: &Secret) -> Progress<ClusterKey> {
    let entry = secret.data.as_ref().and_then(|data| data.get(PRIVATE_KEY));
    let Some(text) = entry else {
        return Progress::Missing(format!("Secret {AUTHENTICATION_KEYS} has no {PRIVATE_KEY}"));
    };
    match ClusterKey::from_pem(&text.0) {
        Ok(key) => Progress::Done(key),
        Err(error) => Progress::Refused(format!(
            "Secret {AUTHENTICATION_KEYS}, data.{PRIVATE_KEY}: {error}: restore the Secret, or delete it and peer again"
        )),
    }
}

/// Returns the Tenant of the consumer `id`.
fn manifest(id: &str, namespace: Option<&str>, proof: &Proof, proxy_url: Option<&str>) -> Value {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let mut spec = json!({
        "clusterID": id,
        "csr": bytes(&proof.csr),
        "publicKey": bytes(&proof.key.to_pem()),
        "signature": ByteString(proof.signature.clone()),
    });
    if let Some(url) = proxy_url {
        spec["proxyURL"] = url.into();
    }
    manifest::object_of((AUTHENTICATION, "Tenant"), id, namespace, id, spec)
}

/// Remedy where a provider knows another key of this cluster. Which step meets the old key first is a matter of time.
pub(crate) const REINSTALLED: &str =
    "if this cluster was installed again since it was peered, run `liqoctl unpeer` first";

/// Credentials that a provider returns to a consumer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Granted {
    /// Credentials and address of the API server.
    pub(crate) auth_params: AuthParams,
    /// The consumer's tenant namespace at the provider.
    pub(crate) namespace: String,
}

impl Granted {
    /// Returns the result in a Tenant.
    ///
    /// # Errors
    ///
    /// Returns the missing part.
    pub(crate) fn of(tenant: &Tenant) -> Result<Self, String> {
        let status = tenant.status.clone().unwrap_or_default();
        match (status.auth_params, status.tenant_namespace) {
            (Some(auth_params), Some(namespace)) => Ok(Self {
                auth_params,
                namespace,
            }),
            _ => Err(
                "the Tenant has no credentials yet (its Events name the reason of a refusal)"
                    .to_owned(),
            ),
        }
    }

    /// Checks that the address is of this proxy, or of none if the URL is empty.
    ///
    /// # Errors
    ///
    /// Returns the missing part.
    fn check_proxy(&self, url: &str) -> Result<(), String> {
        match self.auth_params.proxy_url.as_deref().unwrap_or_default() {
            present if present == url => Ok(()),
            _ => Err("the Tenant has the credentials for another proxy".to_owned()),
        }
    }

    /// Checks that the certificate is of this key. That of an earlier installation of the consumer is not.
    ///
    /// # Errors
    ///
    /// Returns the reason and the remedy.
    fn check(&self, id: &str, key: &PublicKey) -> Result<(), String> {
        // Amazon's clusters issue other credentials.
        let Some(certificate) = &self.auth_params.signed_crt else {
            return Ok(());
        };
        let subject = Subject::control_plane(id);
        match Certificate::parse(&certificate.0, &subject, key) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "the Tenant has the credentials of an earlier request: {error}; {REINSTALLED}"
            )),
        }
    }
}

/// Returns the step that writes the Tenant of the consumer `id` in the cluster of its provider.
pub(crate) fn step<'a>(
    provider: &'a Cluster,
    namespace: &str,
    id: &str,
    proof: &Proof,
    proxy_url: Option<&str>,
) -> ObjectStep<'a, Tenant, Granted> {
    let lines = Lines {
        scope: provider.side,
        apply: lines(
            "Applying tenant on provider cluster",
            "Tenant correctly applied on provider cluster",
        ),
        wait: lines(
            "Waiting for tenant status to be filled",
            "Tenant status is filled",
        ),
        goal: "obtaining the credentials",
    };
    let select = Select::Labels(objects::selector(id));
    let object = manifest(id, Some(namespace), proof, proxy_url);
    let (id, key) = (id.to_owned(), proof.key.clone());
    let proxy_url = proxy_url.unwrap_or_default().to_owned();
    ObjectStep::write(provider, lines, select, object, move |tenant: &Tenant| {
        let granted = Granted::of(tenant)?;
        granted.check(&id, &key)?;
        granted.check_proxy(&proxy_url)?;
        Ok(granted)
    })
    .optional("/spec", "proxyURL")
}

/// Flags of `liqoctl generate tenant`.
#[derive(Args, Debug)]
struct Generate {
    /// The cluster ID of the provider.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    remote_cluster_id: String,

    /// The nonce of the provider. Default: that of the Secret in the tenant namespace.
    #[arg(long, value_name = "NONCE")]
    nonce: Option<String>,

    /// The URL of the proxy in front of the provider's API server.
    #[arg(long, value_name = "URL")]
    proxy_url: Option<String>,

    /// The tenant namespace of this cluster at the provider. Default: that of `kubectl apply`.
    #[arg(long, value_name = "NAMESPACE")]
    remote_tenant_namespace: Option<String>,

    /// The output format, json or yaml.
    #[arg(long, short, default_value = "yaml", value_name = "FORMAT")]
    output: Format,
}

impl Run for Generate {
    async fn run(self, global: &Global) -> Result<()> {
        let cluster = Cluster::local(global).await?;
        let liqo = cluster.installation().await?;
        let nonce = match &self.nonce {
            Some(nonce) => nonce.trim().as_bytes().to_vec(),
            None => super::signed_nonce::stored(&cluster, global, &self.remote_cluster_id).await?,
        };
        let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
        let key = key_step(&cluster, &liqo.namespace);
        let key = Runner::run(deadline, async |runner| runner.apply(&key, &()).await).await?;
        let proof = Proof::new(&key, &liqo.cluster_id, &nonce)?;
        let namespace = self.remote_tenant_namespace.as_deref();
        let proxy_url = self.proxy_url.as_deref();
        let mut object = manifest(&liqo.cluster_id, namespace, &proof, proxy_url);
        manifest::add_metadata(
            &mut object,
            &global.global_labels,
            &global.global_annotations,
        );
        output::print(self.output, &manifest::printed(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_credentials::KeyType;

    fn generated(seed: u8) -> ClusterKey {
        ClusterKey::generate(KeyType::Ed25519, [seed; 32]).unwrap()
    }

    #[test]
    fn the_manifest_has_upstreams_fields() {
        let key = generated(1);
        let proof = Proof::new(&key, "rome", b"nonce").unwrap();

        let object = manifest("rome", Some("liqo-tenant-rome"), &proof, None);

        assert_eq!(object["apiVersion"], "authentication.liqo.io/v1beta1");
        assert_eq!(object["metadata"]["name"], "rome");
        assert_eq!(
            object["metadata"]["labels"],
            json!({"liqo.io/remote-cluster-id": "rome"})
        );
        let tenant: Tenant = serde_json::from_value(object).unwrap();
        let spec = tenant.spec;
        assert_eq!(spec.cluster_id.as_deref(), Some("rome"));
        assert_eq!((spec.proxy_url, spec.tenant_condition), (None, None));
        let public = PublicKey::from_bytes(&spec.public_key.unwrap().0).unwrap();
        public.verify(b"nonce", &spec.signature.unwrap().0).unwrap();
        let subject = Subject::control_plane("rome");
        request::check(&spec.csr.unwrap().0, &subject, &public).unwrap();
    }

    #[test]
    fn an_invalid_key_is_not_waited_for() {
        let secret =
            |data: Value| -> Secret { serde_json::from_value(json!({"data": data})).unwrap() };
        let pem = ByteString(generated(1).to_pem().as_bytes().to_vec());

        assert!(matches!(
            super::key(&secret(json!({}))),
            Progress::Missing(_)
        ));
        let valid = secret(json!({"privateKey": pem}));
        assert!(matches!(super::key(&valid), Progress::Done(_)));
        let Progress::Refused(reason) = super::key(&secret(json!({"privateKey": "Zm9v"}))) else {
            panic!("an invalid key must end the command");
        };
        assert!(reason.contains("restore the Secret"), "{reason}");
    }

    #[test]
    fn a_proxy_is_part_of_the_spec() {
        let proof = Proof::new(&generated(1), "rome", b"nonce").unwrap();

        let object = manifest("rome", None, &proof, Some("http://10.70.0.2:8118"));

        assert_eq!(object["spec"]["proxyURL"], "http://10.70.0.2:8118");
    }

    #[test]
    fn credentials_of_another_key_are_not_used() {
        let tenant = |status: Value| -> Tenant {
            serde_json::from_value(json!({
                "apiVersion": AUTHENTICATION, "kind": "Tenant",
                "metadata": {"name": "rome"}, "spec": {}, "status": status,
            }))
            .unwrap()
        };
        let granted = tenant(json!({
            "authParams": {"apiServer": "https://172.18.2.2:6443", "signedCRT": "Zm9v"},
            "tenantNamespace": "liqo-tenant-rome",
        }));
        let granted = Granted::of(&granted).unwrap();

        let error = granted
            .check("rome", generated(1).public_key())
            .unwrap_err();

        assert!(error.contains("an earlier request"), "{error}");
        assert!(error.ends_with(REINSTALLED), "{error}");
        assert!(Granted::of(&tenant(json!({"tenantNamespace": "a"}))).is_err());
    }
}
