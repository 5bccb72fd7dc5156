//! Whether a provider that the controller manager does not reach is gone, or only unreachable.
//!
//! The controller manager reports that an API server does not respond also if it refuses the credentials of the peering, or
//! is that of another cluster. Its conditions are upstream's, and do not distinguish the two.

use crate::cluster::list_all;
use crate::failure;
use crate::objects;
use crate::pair::{Pair, Side};
use anyhow::Result;
use control_api::{Tenant, annotations, labels};
use control_client::destination::Destinations;
use control_client::kubeconfig::{KubeconfigError, RemoteConfig};
use control_client::transport::{Transport, is_untrusted};
use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Api, Client, Error, ResourceExt as _};
use std::fmt;
use std::time::Duration;

/// Limit of each request to the provider. `unpeer` waits for a provider that does not respond for 6 s in total.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The provider has chosen its address, but learns nothing by the probe of another one: only the status of the response is
/// used.
const DESTINATIONS: Destinations = Destinations::Any;

/// Entry of a Secret with the kubeconfig.
const KUBECONFIG: &str = "kubeconfig";

/// Entry of a Secret with the credentials of an IAM user, from which the controller manager signs tokens.
const AWS_ACCESS_KEY_ID: &str = "awsAccessKeyID";

/// The evidence that a provider is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It does not accept the credentials of the peering, or another cluster has its address. The controller manager
    /// finds that out as well, and does not wait for the replicas.
    CredentialsRefused,
    /// It has no Tenant of the consumer, so it has no replicas. The controller manager cannot find that out.
    NoTenant,
}

impl fmt::Display for Gone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::CredentialsRefused => {
                "does not accept the credentials of the peering, or another cluster has its address"
            }
            Self::NoTenant => "has no Tenant of the local cluster",
        })
    }
}

/// Returns the evidence that the provider is gone, or none. The tenant namespaces are `here` and `there`.
///
/// With a peering in the reverse direction, a missing Tenant is no evidence: the provider cooperates, and the annotation
/// by which the controller manager ends without it would outlast the command.
///
/// # Errors
///
/// Returns an error if an API server fails.
pub(super) async fn gone(
    pair: &Pair,
    here: &str,
    there: Option<&str>,
    is_reversed: bool,
) -> Result<Option<Gone>> {
    let lacks_tenant = async {
        if is_reversed {
            return Ok(false);
        }
        let read = tokio::time::timeout(TIMEOUT, lacks_tenant(&pair.remote, there));
        read.await.unwrap_or(Ok(false))
    };
    let (is_refused, lacks_tenant) = tokio::try_join!(is_refused(&pair.local, here), lacks_tenant)?;

    Ok(evidence(is_refused, lacks_tenant))
}

/// A missing Tenant is the better evidence: the controller manager may not reach the server that has refused.
fn evidence(is_refused: bool, lacks_tenant: bool) -> Option<Gone> {
    match (is_refused, lacks_tenant) {
        (_, true) => Some(Gone::NoTenant),
        (true, false) => Some(Gone::CredentialsRefused),
        (false, false) => None,
    }
}

/// Returns whether the provider has no Tenant in the tenant namespace of the consumer.
async fn lacks_tenant(provider: &Side, namespace: Option<&str>) -> Result<bool> {
    let Some(namespace) = namespace else {
        return Ok(true);
    };
    let api = Api::<Tenant>::namespaced(provider.cluster.client.clone(), namespace);
    match list_all(&api, "").await {
        Ok(found) => Ok(found.is_empty()),
        Err(error) if failure::is_forbidden(&error) => Ok(false),
        Err(error) => Err(provider.cluster.failed("list Tenants")(error)),
    }
}

/// Returns whether the provider refuses the credentials of the controller manager. A provider that does not respond does
/// not.
async fn is_refused(consumer: &Side, namespace: &str) -> Result<bool> {
    let cluster = &consumer.cluster;
    let selector = format!(
        "{},{}={}",
        objects::selector(&consumer.peer),
        labels::IDENTITY_TYPE,
        labels::IDENTITY_TYPE_CONTROL_PLANE
    );
    let api = Api::<Secret>::namespaced(cluster.client.clone(), namespace);
    let secrets = match list_all(&api, &selector).await {
        Ok(found) => found,
        Err(error) if failure::is_forbidden(&error) => return Ok(false),
        Err(error) => return Err(cluster.failed("list Secrets")(error)),
    };
    let Some(secret) = credentials(secrets) else {
        return Ok(false);
    };
    let config = match config(&secret) {
        Ok(config) => config,
        // The controller manager cannot use it either.
        Err(_) => return Ok(true),
    };
    let has_token = entry(&secret, AWS_ACCESS_KEY_ID).is_some();
    let failed = probe(&config).await;

    Ok(failed.is_some_and(|error| shows_refusal(&error, has_token)))
}

/// Returns the Secret that the controller manager uses: the first one with the provider's tenant namespace.
fn credentials(mut secrets: Vec<Secret>) -> Option<Secret> {
    secrets.sort_by_key(|secret| secret.name_any());
    let mut secrets = secrets.into_iter();
    secrets.find(|secret| {
        let annotations = secret.annotations();
        annotations.contains_key(annotations::REMOTE_TENANT_NAMESPACE)
    })
}

fn entry<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    let value = secret.data.as_ref()?.get(key)?;
    Some(&value.0)
}

/// Parses the kubeconfig as the controller manager does.
fn config(secret: &Secret) -> Result<RemoteConfig, KubeconfigError> {
    let text = entry(secret, KUBECONFIG).unwrap_or_default();
    let text = String::from_utf8_lossy(text);

    RemoteConfig::parse(&text, DESTINATIONS)
}

/// Sends the request by which the controller manager probes the API server. Returns its error; none without a response.
async fn probe(config: &RemoteConfig) -> Option<Error> {
    let config = config.as_ref();
    let transport = Transport::new(config, DESTINATIONS).ok()?;
    let client = Client::new(transport, config.default_namespace.clone());
    let request = Request::new("").get("livez", &GetParams::default()).ok()?;
    match tokio::time::timeout(TIMEOUT, client.request_text(request)).await {
        Ok(response) => response.err(),
        Err(_) => None,
    }
}

/// Returns whether the error of a probe is a refusal: a status of the API server, or the certificate of another authority.
/// With tokens, which only the controller manager signs, a status is no evidence.
fn shows_refusal(error: &Error, has_token: bool) -> bool {
    if let Error::Api(status) = error {
        return !has_token && [401, 403].contains(&status.code);
    }
    is_untrusted(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    fn secret(name: &str, annotations: &Value, kubeconfig: &str) -> Secret {
        let mut secret: Secret = from_value(json!({
            "metadata": {"name": name, "annotations": annotations},
        }))
        .expect("a Secret");
        let data = k8s_openapi::ByteString(kubeconfig.into());
        secret.data = Some([(KUBECONFIG.to_owned(), data)].into());
        secret
    }

    fn kubeconfig(server: &str, user: &Value) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user}],
        })
        .to_string()
    }

    /// Returns the error of a probe of a server that sends this response, or none.
    async fn probed(response: &'static str) -> Option<Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let server = async {
            let mut request = [0; 1024];
            let (mut stream, read) = loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let read = stream.read(&mut request).await.expect("a request");
                // The transport closes a connection that offers no HTTP/2, and opens one for HTTP/1.1.
                if read > 0 {
                    break (stream, read);
                }
            };
            let text = String::from_utf8_lossy(&request[..read]);
            assert!(text.starts_with("GET /livez HTTP/1.1\r\n"), "{text}");
            let written = stream.write_all(response.as_bytes()).await;
            written.expect("a response");
            std::future::pending::<()>().await;
        };
        let text = kubeconfig(&format!("http://{address}"), &json!({"token": "a"}));
        let config = RemoteConfig::parse(&text, DESTINATIONS).expect("a kubeconfig");
        tokio::select! {
            error = probe(&config) => error,
            () = server => None,
        }
    }

    #[tokio::test]
    async fn a_provider_that_refuses_the_credentials_is_gone() {
        for response in [
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        ] {
            let error = probed(response).await.expect("a refusal");

            assert!(shows_refusal(&error, false), "{error:?}");
            assert!(!shows_refusal(&error, true));
        }
    }

    #[tokio::test]
    async fn a_provider_that_responds_or_fails_is_not_gone() {
        let healthy = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert!(probed(healthy).await.is_none());

        for response in [
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n",
        ] {
            let error = probed(response).await.expect("a failure");
            assert!(!shows_refusal(&error, false), "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_provider_without_response_is_not_gone() {
        assert!(probed("").await.is_none());

        let text = kubeconfig("http://127.0.0.1:1", &json!({"token": "a"}));
        let config = RemoteConfig::parse(&text, DESTINATIONS).expect("a kubeconfig");
        let error = probe(&config).await.expect("a failure");
        assert!(!shows_refusal(&error, false), "{error:?}");
    }

    #[test]
    fn the_credentials_are_those_that_the_controller_manager_uses() {
        let annotations = json!({"liqo.io/remote-tenant-namespace": "liqo-tenant-rome"});
        let secrets = vec![
            secret("c", &annotations, ""),
            secret("b", &annotations, ""),
            secret("a", &json!({}), ""),
        ];

        let chosen = credentials(secrets).expect("a Secret");

        assert_eq!(chosen.name_any(), "b");
        assert!(credentials(Vec::new()).is_none());
    }

    #[test]
    fn a_kubeconfig_that_the_controller_manager_refuses_reaches_no_provider() {
        let is_usable = |text: &str| config(&secret("a", &json!({}), text)).is_ok();
        let plugin = json!({"exec": {"command": "sh"}});

        // The controller manager may have an option to connect to such an address.
        for address in ["https://192.0.2.1:6443", "https://127.0.0.1:6443"] {
            assert!(is_usable(&kubeconfig(address, &json!({"token": "a"}))));
            assert!(!is_usable(&kubeconfig(address, &plugin)));
        }
        assert!(!is_usable(""));
    }

    #[test]
    fn a_missing_tenant_is_better_evidence_than_a_refusal() {
        assert_eq!(evidence(true, true), Some(Gone::NoTenant));
        assert_eq!(evidence(true, false), Some(Gone::CredentialsRefused));
        assert_eq!(evidence(false, true), Some(Gone::NoTenant));
        assert_eq!(evidence(false, false), None);
    }
}
