//! An HTTPS server that sends the same admission response to each request.

use anyhow::{Context as _, Result};
use rcgen::CertifiedKey;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// A webhook's server on 127.0.0.1. It ends with the runtime of the test.
pub(crate) struct Server {
    address: SocketAddr,
    certificate: String,
    calls: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server that allows or refuses all objects, `delay` after the request.
    pub(crate) async fn start(allowed: bool, delay: Duration) -> Result<Self> {
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])
                .context("failed to sign a certificate")?;
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .context("the certificate is unusable")?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);

        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let review = Review {
                    allowed,
                    delay,
                    calls: Arc::clone(&counter),
                };
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, acceptor, review).await {
                        eprintln!("webhook: {error:#}");
                    }
                });
            }
        });

        Ok(Self {
            address,
            certificate: cert.pem(),
            calls,
        })
    }

    /// Returns the number of requests that have arrived.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/review", self.address)
    }

    /// Returns the self-signed certificate as PEM.
    pub(crate) fn certificate(&self) -> String {
        self.certificate.clone()
    }
}

/// The response to each request, its delay, and the number of requests.
struct Review {
    allowed: bool,
    delay: Duration,
    calls: Arc<AtomicUsize>,
}

/// Serves the requests of a connection.
async fn serve(stream: TcpStream, acceptor: TlsAcceptor, config: Review) -> Result<()> {
    let mut stream = BufStream::new(acceptor.accept(stream).await?);
    while let Some(length) = content_length(&mut stream).await? {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let review: Value = serde_json::from_slice(&body).context("the request is no JSON")?;
        config.calls.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(config.delay).await;
        let response = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {
                "uid": review["request"]["uid"],
                "allowed": config.allowed,
                "status": {"code": 400, "message": "refused by a test"},
            },
        })
        .to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            response.len()
        );
        stream
            .write_all(format!("{head}{response}").as_bytes())
            .await?;
        stream.flush().await?;
    }

    Ok(())
}

/// Reads the head of a request, and returns the length of its body in bytes. Returns `None` at the
/// end of the connection.
async fn content_length(
    stream: &mut (impl tokio::io::AsyncBufRead + Unpin),
) -> Result<Option<usize>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            return Ok(Some(length));
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().context("the length is no number")?;
        }
    }
}
