//! One request to a kubelet, whose response is filtered while it arrives.

use super::budget::{Exceeded, Share};
use super::exposition::LineReader;
use super::filter::{Filter, NodeSamples};
use super::kubelet_tls::{AuthorityError, KubeletCertificates, KubeletTls};
use super::route::Endpoint;
use super::selection::Kubelet;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

/// Maximum length of a kubelet's response, in bytes. cAdvisor reports some 50 KiB for a pod, and a node has at most
/// some hundreds.
const BODY_LEN_MAX: usize = 64 << 20;

/// Maximum length of the response's header, and of a piece of its body, in bytes.
const BUFFER_LEN: usize = 64 << 10;

/// Maximum number of malformed lines of a response. A response with more is of another format.
const MALFORMED_MAX: u64 = 1000;

/// Format that the agent parses. Kubelets would choose another one for `*/*` in the future.
const ACCEPT: &str = "text/plain;version=0.0.4";

/// Settings of requests to kubelets.
#[derive(Clone, Debug)]
pub struct KubeletSettings {
    /// Which of their certificates are accepted.
    pub certificates: KubeletCertificates,
    /// File with the certificates of the cluster's authority, in PEM.
    pub authority: PathBuf,
    /// File with the agent's token. Kubernetes replaces it about every hour.
    pub token: PathBuf,
    /// Time to connect to a kubelet, with TLS.
    pub connect_timeout: Duration,
    /// Time from the connection attempt to the end of the response.
    pub timeout: Duration,
}

/// Credentials for kubelets, and how to verify theirs.
#[derive(Clone, Debug)]
pub(super) struct Client {
    tls: KubeletTls,
    authorization: header::HeaderValue,
    connect_timeout: Duration,
    timeout: Duration,
}

/// The agent has no credentials for kubelets.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// A file cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The token contains characters that no header field may contain.
    #[error("the token file contains no token: check --kubelet-token")]
    Token,
    /// The authority is invalid.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// Why a kubelet has returned no samples.
#[derive(Debug, thiserror::Error)]
pub(super) enum KubeletError {
    /// The kubelet does not accept connections.
    #[error("the kubelet is unreachable")]
    Unreachable(#[source] io::Error),
    /// The certificate of the kubelet is not accepted.
    #[error(
        "TLS with the kubelet failed: if its certificate is not of the cluster's authority, enable `serverTLSBootstrap` \
         of the kubelets, or set --kubelet-certificates=any (chart: metricAgent.config.kubelet.certificates)"
    )]
    Tls(#[source] io::Error),
    /// No complete response in time.
    #[error("the kubelet timed out")]
    Timeout,
    /// The kubelet refuses the agent.
    #[error(
        "the kubelet refuses the request ({0}): it must authorize by webhook, and the agent needs `get` on \
         `nodes/metrics`"
    )]
    Refused(StatusCode),
    /// The kubelet returns another status.
    #[error("the kubelet responds with {0}")]
    Status(StatusCode),
    /// The response is longer than the agent reads.
    #[error("the response of the kubelet exceeds {BODY_LEN_MAX} bytes")]
    TooLong,
    /// The samples exceed a limit.
    #[error(transparent)]
    Memory(Exceeded),
    /// The response is not of the text format.
    #[error("the response of the kubelet is not of the Prometheus text format")]
    Format,
    /// The response has ended early.
    #[error("the response of the kubelet is incomplete")]
    Incomplete(#[source] hyper::Error),
}

impl KubeletError {
    /// Returns the value of a label.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Tls(_) => "tls",
            Self::Timeout => "timeout",
            Self::Refused(_) => "refused",
            Self::Status(_) => "status",
            Self::TooLong => "too_long",
            Self::Memory(_) => "memory",
            Self::Format => "format",
            Self::Incomplete(_) => "incomplete",
        }
    }
}

impl Client {
    /// Reads the credentials.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError`] if a file cannot be read or used.
    pub(super) async fn load(settings: &KubeletSettings) -> Result<Self, ClientError> {
        let authority = match settings.certificates {
            KubeletCertificates::Verified => read(&settings.authority).await?,
            KubeletCertificates::Any => Vec::new(),
        };
        let token = read(&settings.token).await?;
        let token = String::from_utf8(token).map_err(|_| ClientError::Token)?;
        let value = format!("Bearer {}", token.trim());
        let value = header::HeaderValue::try_from(value).map_err(|_| ClientError::Token)?;
        let mut authorization = Some(value).filter(|_| !token.trim().is_empty());
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }

        Ok(Self {
            tls: KubeletTls::new(settings.certificates, &authority)?,
            authorization: authorization.ok_or(ClientError::Token)?,
            connect_timeout: settings.connect_timeout,
            timeout: settings.timeout,
        })
    }

    /// Requests metrics of a kubelet, and returns the samples of the consumer's pods, whose memory `share` counts.
    ///
    /// # Errors
    ///
    /// Returns [`KubeletError`] if the response is not complete. Samples of a part of the response are dropped.
    pub(super) async fn scrape(
        &self,
        node: &str,
        kubelet: &Kubelet,
        endpoint: Endpoint,
        share: &mut Share,
    ) -> Result<NodeSamples, KubeletError> {
        let scrape = async {
            let response = self.request(node, kubelet, endpoint).await?;
            filter(response, kubelet, share).await
        };

        timeout(self.timeout, scrape)
            .await
            .unwrap_or(Err(KubeletError::Timeout))
    }

    async fn request(
        &self,
        node: &str,
        kubelet: &Kubelet,
        endpoint: Endpoint,
    ) -> Result<(Incoming, Connection), KubeletError> {
        let connect = self.connect(node, kubelet);
        let connected = timeout(self.connect_timeout, connect).await;
        let stream = connected.unwrap_or(Err(KubeletError::Timeout))?;
        let mut http = http1::Builder::new();
        http.max_buf_size(BUFFER_LEN);
        let handshake = http.handshake::<_, Empty<Bytes>>(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(KubeletError::Incomplete)?;
        let connection = Connection(tokio::spawn(async move {
            // The response reports the error.
            let _ = connection.await;
        }));
        let request = Request::get(endpoint.path())
            .header(header::HOST, kubelet.address.to_string())
            .header(header::AUTHORIZATION, self.authorization.clone())
            .header(header::ACCEPT, ACCEPT)
            .header(header::USER_AGENT, "liqo-metric-agent")
            .body(Empty::new())
            .map_err(|_| KubeletError::Format)?;
        let response = sender.send_request(request);
        let response = response.await.map_err(KubeletError::Incomplete)?;
        match response.status() {
            StatusCode::OK => Ok((response.into_body(), connection)),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(KubeletError::Refused(status))
            }
            status => Err(KubeletError::Status(status)),
        }
    }

    async fn connect(
        &self,
        node: &str,
        kubelet: &Kubelet,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, KubeletError> {
        let stream = TcpStream::connect(kubelet.address).await;
        let stream = stream.map_err(KubeletError::Unreachable)?;
        let connector = self.tls.connector(node);
        let connector = connector.map_err(|it| KubeletError::Tls(io::Error::other(it)))?;
        let name = ServerName::from(kubelet.address.ip());

        connector
            .connect(name, stream)
            .await
            .map_err(KubeletError::Tls)
    }
}

/// The task that drives a connection; aborted with the request.
struct Connection(tokio::task::JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn filter(
    (mut body, _connection): (Incoming, Connection),
    kubelet: &Kubelet,
    share: &mut Share,
) -> Result<NodeSamples, KubeletError> {
    let mut filter = Filter::new(&kubelet.pods);
    let mut reader = LineReader::default();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(KubeletError::Incomplete)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        read += data.len();
        if read > BODY_LEN_MAX {
            return Err(KubeletError::TooLong);
        }
        reader.push(&data, |line| filter.line(line));
        share.resize(filter.len()).map_err(KubeletError::Memory)?;
        if filter.malformed() > MALFORMED_MAX {
            return Err(KubeletError::Format);
        }
    }
    let too_long = reader.finish(|line| filter.line(line));

    Ok(filter.finish(too_long))
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, ClientError> {
    let read = tokio::fs::read(path).await;
    read.map_err(|source| ClientError::Read {
        path: path.clone(),
        source,
    })
}
