//! Kubeconfigs with a client certificate and the cluster's key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// Name of the only context.
const CONTEXT: &str = "default-context";

/// A cluster, and the credentials for it.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// Name of the cluster: the provider's cluster ID.
    pub cluster: &'a str,
    /// Name of the user.
    pub user: &'a str,
    /// URL of the API server.
    pub server: &'a str,
    /// PEM bundle of its certificate authority; `None` for those that the system trusts.
    pub certificate_authority: Option<&'a [u8]>,
    /// URL of the CONNECT proxy in front of it.
    pub proxy_url: Option<&'a str>,
    /// Default namespace.
    pub namespace: Option<&'a str>,
    /// Client certificate and private key, in PEM; `None` for a cluster that expects a token.
    pub client: Option<(&'a [u8], &'a [u8])>,
}

/// Returns the kubeconfig as YAML.
///
/// # Errors
///
/// Returns an error if the library fails.
pub fn kubeconfig(access: &Access<'_>) -> Result<String, serde_saphyr::ser::Error> {
    let config = Config {
        api_version: "v1",
        clusters: [Named {
            cluster: Some(Cluster {
                certificate_authority_data: access
                    .certificate_authority
                    .map(|ca| STANDARD.encode(ca)),
                proxy_url: access.proxy_url,
                server: access.server,
            }),
            name: access.cluster,
            ..Named::default()
        }],
        contexts: [Named {
            context: Some(Context {
                cluster: access.cluster,
                namespace: access.namespace,
                user: access.user,
            }),
            name: CONTEXT,
            ..Named::default()
        }],
        current_context: CONTEXT,
        kind: "Config",
        users: [Named {
            name: access.user,
            user: Some(User {
                client_certificate_data: access.client.map(|it| STANDARD.encode(it.0)),
                client_key_data: access.client.map(|it| STANDARD.encode(it.1)),
            }),
            ..Named::default()
        }],
    };
    // Each value on one line, as upstream writes it.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };

    serde_saphyr::to_string_with_options(&config, options)
}

/// The fields of a kubeconfig, in the order in which kubectl writes them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    api_version: &'a str,
    clusters: [Named<'a>; 1],
    contexts: [Named<'a>; 1],
    #[serde(rename = "current-context")]
    current_context: &'a str,
    kind: &'a str,
    users: [Named<'a>; 1],
}

#[derive(Default, Serialize)]
struct Named<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Cluster<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Context<'a>>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<User>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_url: Option<&'a str>,
    server: &'a str,
}

#[derive(Serialize)]
struct Context<'a> {
    cluster: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    user: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<String>,
}
