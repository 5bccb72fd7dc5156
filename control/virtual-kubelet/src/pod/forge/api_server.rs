//! Access of a remote pod to the API server of this cluster.

use control_api::annotations;
use k8s_openapi::api::core::v1::{EnvVar, HostAlias, Pod};
use std::net::IpAddr;

/// Name of the API server in the remote pod's hosts file. The certificate of every API server has it.
const HOST: &str = "kubernetes.default";
/// Hostnames of an address of the API server.
const HOSTNAMES: [&str; 2] = [HOST, "kubernetes.default.svc"];

/// Field with the name of a pod's ServiceAccount, which is another one in the remote pod.
const SERVICE_ACCOUNT_FIELD: &str = "spec.serviceAccountName";
/// ServiceAccount of a pod that names none.
const SERVICE_ACCOUNT_DEFAULT: &str = "default";

/// How a remote pod gets a token, and of which API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiServerSupport {
    /// None.
    Disabled,
    /// Tokens of this cluster's API server, requested for the pod and reflected in a Secret of the pod.
    TokenApi,
    /// Tokens of the provider's API server, for a ServiceAccount of the provider.
    Remote,
}

impl ApiServerSupport {
    /// Returns the mode of a pod, which an annotation may override.
    pub(crate) fn of(pod: &Pod, default: Self) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let value = annotations.and_then(|it| it.get(annotations::API_SERVER_SUPPORT));
        match value.map(String::as_str) {
            Some("disabled") => Self::Disabled,
            Some("remote") => Self::Remote,
            Some(_) | None => default,
        }
    }

    /// Returns whether the remote pod is to reach the API server of this cluster.
    pub(super) fn reaches_home(self) -> bool {
        match self {
            Self::TokenApi => true,
            Self::Disabled | Self::Remote => false,
        }
    }
}

/// Address of this cluster's API server, as remote pods reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeApiServer<'a> {
    /// Name in the hosts file, with the addresses that the provider's network remaps.
    Alias {
        /// Port of this cluster's Service `kubernetes`.
        port: u16,
        /// `status.ip` of the IP objects of type `api-server`; empty without networking.
        addresses: &'a [IpAddr],
    },
    /// Flags `--home-api-server-host` and `--home-api-server-port`.
    Fixed {
        /// Host name or address.
        host: &'a str,
        /// Port.
        port: u16,
    },
}

impl HomeApiServer<'_> {
    /// Returns the variables that a kubelet would set for the Service `kubernetes`.
    fn variables(self) -> [(&'static str, String); 7] {
        let (host, port) = match self {
            Self::Alias { port, .. } => (HOST, port),
            Self::Fixed { host, port } => (host, port),
        };
        let is_ipv6 = host.contains(':');
        let url = if is_ipv6 {
            format!("tcp://[{host}]:{port}")
        } else {
            format!("tcp://{host}:{port}")
        };

        [
            ("KUBERNETES_SERVICE_HOST", host.to_owned()),
            ("KUBERNETES_SERVICE_PORT", port.to_string()),
            ("KUBERNETES_PORT", url.clone()),
            ("KUBERNETES_PORT_443_TCP", url),
            ("KUBERNETES_PORT_443_TCP_PROTO", "tcp".to_owned()),
            ("KUBERNETES_PORT_443_TCP_ADDR", host.to_owned()),
            ("KUBERNETES_PORT_443_TCP_PORT", port.to_string()),
        ]
    }

    /// Returns the entries of the hosts file.
    pub(super) fn host_aliases(self) -> impl Iterator<Item = HostAlias> {
        let addresses = match self {
            Self::Alias { addresses, .. } => addresses,
            Self::Fixed { .. } => &[],
        };
        addresses.iter().map(|address| HostAlias {
            ip: address.to_string(),
            hostnames: Some(HOSTNAMES.map(str::to_owned).to_vec()),
        })
    }
}

/// Adds the variables of the API server to a container's environment.
///
/// A variable that the container defines keeps its value, as in a pod of this cluster.
pub(super) fn extend_environment(
    env: &mut Option<Vec<EnvVar>>,
    pod: &Pod,
    server: HomeApiServer<'_>,
) {
    let env = env.get_or_insert_default();
    for variable in env.iter_mut() {
        let source = variable.value_from.as_ref();
        let field = source.and_then(|it| it.field_ref.as_ref());
        if field.is_some_and(|it| it.field_path == SERVICE_ACCOUNT_FIELD) {
            variable.value = Some(service_account(pod).to_owned());
            variable.value_from = None;
        }
    }

    for (name, value) in server.variables() {
        if !env.iter().any(|it| it.name == name) {
            env.push(EnvVar {
                name: name.to_owned(),
                value: Some(value),
                value_from: None,
            });
        }
    }
}

/// Returns the name of a pod's ServiceAccount.
pub(crate) fn service_account(pod: &Pod) -> &str {
    let name = pod
        .spec
        .as_ref()
        .and_then(|it| it.service_account_name.as_deref());
    name.filter(|it| !it.is_empty())
        .unwrap_or(SERVICE_ACCOUNT_DEFAULT)
}
