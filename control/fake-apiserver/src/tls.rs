//! TLS with ALPN, so that clients choose HTTP/2.

use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::server::TlsStream;

/// A self-signed certificate for 127.0.0.1, and the connections that were accepted with it.
#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    certificate: Arc<Vec<u8>>,
    accepted: Arc<AtomicUsize>,
}

impl Tls {
    pub(crate) fn new() -> Self {
        let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let key = key.expect("the name is valid");
        let certificate = key.cert.der().clone();
        let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring supports them")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], private.into())
            .expect("the key belongs to the certificate");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];

        Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certificate: Arc::new(certificate.to_vec()),
            accepted: Arc::default(),
        }
    }

    /// Returns the certificate, DER-encoded.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.certificate.to_vec()
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("accepted", &self.accepted())
            .finish_non_exhaustive()
    }
}

/// Accepts connections one after the other, with their handshakes.
pub(crate) struct TlsListener {
    pub(crate) tcp: TcpListener,
    pub(crate) tls: Tls,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.tcp).await;
            // A failed handshake concerns its client only.
            if let Ok(stream) = self.tls.acceptor.accept(stream).await {
                self.tls.accepted.fetch_add(1, Ordering::Relaxed);
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
