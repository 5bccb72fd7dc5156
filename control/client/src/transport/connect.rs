//! Connects to an API server: TCP, optionally through a proxy (CONNECT), then TLS.

use crate::cause::cause;
use crate::destination::{Destinations, Resolver};
use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use kube::Config;
use kube::client::ConfigExt as _;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_rustls::rustls::{self, CertificateError};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};

/// The time for TCP, CONNECT and TLS together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens connections to the server of a URI.
pub(super) type Connector = BoxCloneSyncService<Uri, Stream, BoxError>;

/// The configuration of a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A token, or the file that contains the token, is invalid.
    #[error("the credentials of the API server are invalid")]
    Credentials(#[source] kube::Error),

    /// The user or a group to impersonate is not a valid header value.
    #[error("the impersonated user or group is invalid")]
    Headers(#[source] kube::Error),

    /// A certificate or a private key is invalid.
    #[error("the certificates of the API server are invalid")]
    Tls(#[source] kube::Error),

    /// The certificates of the authority are not in PEM. No server would be trusted.
    #[error("certificate-authority-data contains no certificate in PEM")]
    Authority,

    /// The name for TLS is neither a DNS name nor an IP address.
    #[error("tls-server-name {0:?} is neither a DNS name nor an IP address")]
    ServerName(String),

    /// The address of the API server has another scheme than HTTPS or HTTP.
    #[error("server {0:?} is not supported: use https://")]
    Server(String),

    /// The address of the API server or of the proxy has a port that does not exist.
    #[error("the port of {0:?} is invalid: use 1 to 65535")]
    Port(String),

    /// The proxy cannot be used.
    #[error("proxy-url {0:?} is not supported: use http:// or https://")]
    Proxy(String),

    /// The address is one of this machine, or of its cloud.
    #[error(
        "{0} is no address of another cluster: it is loopback, link-local, multicast or a metadata service"
    )]
    Destination(String),
}

/// Returns whether a request failed because the server's certificate is not of the authority in the configuration:
/// the server belongs to another cluster, or to an attacker. An expired certificate, or one for another name, is none
/// of both.
pub fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    // Authorities of different clusters may have the same name, and then differ by the signature.
    matches!(
        cause(error),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature
        ))
    )
}

/// Connectors that differ in the application protocols that they offer (ALPN).
#[derive(Clone)]
pub(super) struct Connectors {
    /// Offers HTTP/2, then HTTP/1.1.
    pub(super) any: Connector,
    /// Offers HTTP/1.1.
    pub(super) http1: Connector,
}

impl Connectors {
    /// Creates the connectors for the certificates and the proxy in `config`, which connect to these destinations.
    pub(super) fn new(config: &Config, destinations: Destinations) -> Result<Self, ConfigError> {
        let server = &config.cluster_url;
        if !matches!(server.scheme_str(), Some("https" | "http")) {
            return Err(ConfigError::Server(without_credentials(server)));
        }
        for address in [server].into_iter().chain(&config.proxy_url) {
            check_port(address)?;
        }
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(ConfigError::Authority);
        }
        // With a proxy, this process connects to the proxy only.
        let dialled = config.proxy_url.as_ref().unwrap_or(&config.cluster_url);
        let host = dialled.host().unwrap_or_default();
        if !destinations.permits_host(host) {
            return Err(ConfigError::Destination(host.to_owned()));
        }

        Ok(Self {
            any: connector(config, destinations, true)?,
            http1: connector(config, destinations, false)?,
        })
    }
}

/// A connection to an API server, and the application protocol that the server chose.
pub(super) struct Stream(Box<dyn Io>);

trait Io: Read + Write + Connection + Send + Unpin {}

impl<T: Read + Write + Connection + Send + Unpin> Io for T {}

/// Refuses a port that does not exist. The connector would use the default port of the scheme.
fn check_port(address: &Uri) -> Result<(), ConfigError> {
    let authority = address.authority().map_or("", |it| it.as_str());
    let host = address.host().unwrap_or_default();
    let port = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host_and_port)| host_and_port)
        .strip_prefix(host)
        .and_then(|it| it.strip_prefix(':'))
        .unwrap_or_default();
    let exists = address.port_u16().is_some_and(|port| port != 0);
    if port.is_empty() || exists {
        return Ok(());
    }

    Err(ConfigError::Port(format!(
        "{}:{port}",
        without_credentials(address)
    )))
}

fn connector(
    config: &Config,
    destinations: Destinations,
    http2: bool,
) -> Result<Connector, ConfigError> {
    let mut tcp = HttpConnector::new_with_resolver(Resolver::new(destinations));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));

    let Some(proxy) = &config.proxy_url else {
        return tls(config, tcp, http2);
    };
    match proxy.scheme_str() {
        Some("http") => tls(config, tunnel(proxy, tcp), http2),
        Some("https") => {
            let to_proxy = tls(config, tcp, false)?;
            tls(config, tunnel(proxy, to_proxy), http2)
        }
        _ => Err(ConfigError::Proxy(without_credentials(proxy))),
    }
}

fn tls<C>(config: &Config, inner: C, http2: bool) -> Result<Connector, ConfigError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Connection + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let tls = config.rustls_client_config().map_err(ConfigError::Tls)?;
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let parsed = name.clone().try_into();
        let parsed = parsed.map_err(|_| ConfigError::ServerName(name.clone()))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(parsed));
    }
    let connector: HttpsConnector<C> = if http2 {
        builder.enable_all_versions().wrap_connector(inner)
    } else {
        builder.enable_http1().wrap_connector(inner)
    };

    let boxed = connector.map_response(|io| Stream(Box::new(io)));
    Ok(BoxCloneSyncService::new(boxed))
}

/// Returns a connector through `proxy`, with the user and the password in its URL, if any.
fn tunnel<C>(proxy: &Uri, inner: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.clone(), inner);
    match proxy.authority().and_then(|it| it.as_str().split_once('@')) {
        Some((userinfo, _)) => match basic(userinfo) {
            Some(header) => tunnel.with_auth(header),
            None => tunnel,
        },
        None => tunnel,
    }
}

/// Returns the value of a `Proxy-Authorization` header (RFC 7617) for the userinfo part of a URL.
fn basic(userinfo: &str) -> Option<HeaderValue> {
    use base64::Engine as _;

    let decoded = percent_encoding::percent_decode_str(userinfo).collect::<Vec<u8>>();
    let encoded = base64::engine::general_purpose::STANDARD.encode(decoded);
    HeaderValue::try_from(format!("Basic {encoded}")).ok()
}

fn without_credentials(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    format!("{}://{host}", uri.scheme_str().unwrap_or_default())
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write_vectored(cx, bufs)
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.0.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn userinfo_is_decoded_before_basic_authentication() {
        let header = basic("user:p%40ss").expect("a header");

        assert_eq!(header, "Basic dXNlcjpwQHNz");
    }

    #[test]
    fn an_unsupported_proxy_is_refused_without_showing_its_password() {
        let uri = Uri::from_static("https://10.0.0.1:6443");
        let mut config = Config::new(uri);
        config.proxy_url = Some(Uri::from_static("socks5://user:secret@10.0.0.2:1080"));

        let error = Connectors::new(&config, Destinations::Remote)
            .err()
            .expect("a refusal")
            .to_string();

        assert!(error.contains("socks5://10.0.0.2"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
