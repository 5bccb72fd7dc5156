//! Access to the API server of a peer, from a kubeconfig that the peer may have written.

use crate::destination::Destinations;
use crate::transport::{ConfigError, Transport};
use kube::Config;
use kube::config::{AuthInfo, Kubeconfig};

/// Longest kubeconfig, in bytes. A Secret holds 1 MiB.
const LEN_MAX: usize = 1 << 20;

/// Address and credentials of a peer's API server.
#[derive(Clone)]
pub struct RemoteConfig {
    config: Config,
    /// The kubeconfig, by which equal configurations are recognised.
    text: String,
    /// The token that replaces the kubeconfig's credentials.
    token: Option<String>,
    destinations: Destinations,
}

/// A kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It is not a kubeconfig.
    #[error("failed to parse the kubeconfig: {0}")]
    Syntax(String),
    /// It would run a program, or read a file of this process.
    #[error("the kubeconfig contains {0}, which is refused: use data fields and tokens only")]
    Forbidden(&'static str),
    /// Its fields contradict each other.
    #[error("the kubeconfig is incomplete: {0}")]
    Incomplete(String),
    /// A certificate, a key, the token or the proxy is invalid.
    #[error("the kubeconfig cannot be used: {0}")]
    Invalid(#[from] ConfigError),
}

impl RemoteConfig {
    /// Parses the kubeconfig of a Secret, for connections to these destinations.
    ///
    /// # Errors
    ///
    /// Returns [`KubeconfigError::Forbidden`] for fields that would run a program (`exec`,
    /// `auth-provider`) or read a file: the author of the Secret must not gain access to this process.
    pub fn parse(text: &str, destinations: Destinations) -> Result<Self, KubeconfigError> {
        if text.len() > LEN_MAX {
            return Err(KubeconfigError::Syntax("it is longer than 1 MiB".into()));
        }
        let kubeconfig = Kubeconfig::from_yaml(text)
            .map_err(|error| KubeconfigError::Syntax(error.to_string()))?;
        if let Some(field) = forbidden(&kubeconfig) {
            return Err(KubeconfigError::Forbidden(field));
        }
        let config = Config::try_from(kubeconfig)
            .map_err(|error| KubeconfigError::Incomplete(error.to_string()))?;
        Transport::new(&config, destinations)?;

        Ok(Self {
            config,
            text: text.to_owned(),
            token: None,
            destinations,
        })
    }

    /// Replaces the credentials of the kubeconfig by a bearer token.
    pub fn with_token(mut self, token: String) -> Self {
        self.config.auth_info = AuthInfo {
            token: Some(token.clone().into()),
            ..AuthInfo::default()
        };
        self.token = Some(token);
        self
    }

    /// Returns the addresses that may be connected to.
    pub(crate) fn destinations(&self) -> Destinations {
        self.destinations
    }
}

impl AsRef<Config> for RemoteConfig {
    fn as_ref(&self) -> &Config {
        &self.config
    }
}

impl PartialEq for RemoteConfig {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.token == other.token
    }
}

impl std::fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteConfig")
            .field("url", &self.config.cluster_url)
            .finish_non_exhaustive()
    }
}

/// Returns the first field that would run a program or read a file.
fn forbidden(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    for cluster in kubeconfig
        .clusters
        .iter()
        .filter_map(|it| it.cluster.as_ref())
    {
        if cluster.certificate_authority.is_some() {
            return Some("clusters[].cluster.certificate-authority");
        }
    }
    for user in kubeconfig
        .auth_infos
        .iter()
        .filter_map(|it| it.auth_info.as_ref())
    {
        let fields: [(&'static str, bool); 5] = [
            ("users[].user.exec", user.exec.is_some()),
            ("users[].user.auth-provider", user.auth_provider.is_some()),
            ("users[].user.tokenFile", user.token_file.is_some()),
            (
                "users[].user.client-certificate",
                user.client_certificate.is_some(),
            ),
            ("users[].user.client-key", user.client_key.is_some()),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, is_set)| *is_set) {
            return Some(field);
        }
    }

    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}],
            "clusters": [{{"name": "c", "cluster": {{"server": "https://192.0.2.1:6443" {cluster}}}}}],
            "users": [{{"name": "u", "user": {{ {user} }}}}]}}"#
        )
    }

    fn error(cluster: &str, user: &str) -> String {
        let parsed = RemoteConfig::parse(&kubeconfig(cluster, user), Destinations::Remote);
        parsed.unwrap_err().to_string()
    }

    #[test]
    fn a_token_is_accepted() {
        let parsed = RemoteConfig::parse(
            &kubeconfig("", r#""token": "secret""#),
            Destinations::Remote,
        );

        let config = parsed.unwrap();
        assert_eq!(config.config.cluster_url, "https://192.0.2.1:6443/");
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn a_token_replaces_the_credentials_of_the_kubeconfig() {
        let text = kubeconfig("", r#""username": "rome", "password": "secret""#);
        let config = RemoteConfig::parse(&text, Destinations::Remote).unwrap();

        let with_token = config.clone().with_token("k8s-aws-v1.secret".into());

        assert_ne!(with_token, config);
        assert_eq!(
            with_token,
            config.clone().with_token("k8s-aws-v1.secret".into())
        );
        assert_ne!(with_token, config.with_token("k8s-aws-v1.other".into()));
        let credentials = &with_token.config.auth_info;
        assert!(credentials.token.is_some() && credentials.username.is_none());
        assert!(!format!("{with_token:?}").contains("secret"));
    }

    #[test]
    fn programs_and_files_are_refused_by_the_name_of_the_field() {
        let cases = [
            ("", r#""exec": {"command": "sh"}"#, "user.exec"),
            (
                "",
                r#""auth-provider": {"name": "x", "config": {}}"#,
                "auth-provider",
            ),
            ("", r#""tokenFile": "/etc/shadow""#, "tokenFile"),
            (
                "",
                r#""client-key": "/k", "client-certificate": "/c""#,
                "client-certificate",
            ),
            ("", r#""client-key": "/k""#, "client-key"),
            (
                r#", "certificate-authority": "/ca""#,
                r#""token": "a""#,
                "certificate-authority",
            ),
        ];
        for (cluster, user, field) in cases {
            let error = error(cluster, user);
            assert!(
                error.contains(field) && error.contains("refused"),
                "{error}"
            );
        }
    }

    #[test]
    fn fields_that_the_transport_cannot_use_are_refused() {
        let error = error(
            r#", "proxy-url": "socks5://192.0.2.2:1080""#,
            r#""token": "a""#,
        );
        assert!(error.contains("socks5://192.0.2.2"), "{error}");
        let error = self::error(r#", "tls-server-name": "a b""#, r#""token": "a""#);
        assert!(error.contains("tls-server-name"), "{error}");
    }

    #[test]
    fn an_api_server_or_proxy_on_this_machine_is_refused() {
        let text = kubeconfig("", r#""token": "a""#).replace("192.0.2.1", "169.254.169.254");
        let error = RemoteConfig::parse(&text, Destinations::Remote).unwrap_err();
        assert!(error.to_string().contains("169.254.169.254"), "{error}");
        assert!(RemoteConfig::parse(&text, Destinations::Any).is_ok());

        let proxy = kubeconfig(
            r#", "proxy-url": "http://127.0.0.1:8118""#,
            r#""token": "a""#,
        );
        assert!(RemoteConfig::parse(&proxy, Destinations::Remote).is_err());
        // The address behind a proxy is that of the proxy's network.
        let behind = text.replace(
            r#""server""#,
            r#""proxy-url": "http://192.0.2.2:8118", "server""#,
        );
        assert!(RemoteConfig::parse(&behind, Destinations::Remote).is_ok());
    }

    #[test]
    fn text_that_is_no_kubeconfig_is_an_error() {
        for text in ["\u{0}[", "{}", &" ".repeat(LEN_MAX + 1)] {
            assert!(RemoteConfig::parse(text, Destinations::Remote).is_err());
        }
    }
}
