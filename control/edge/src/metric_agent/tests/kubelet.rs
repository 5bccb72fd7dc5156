//! A kubelet in memory.

use super::fixture::Authority;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The response of a kubelet.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// A complete response with this text.
    Text(String),
    /// A response with this status.
    Status(&'static str),
    /// The start of a longer response, and the end of the connection.
    Truncated(String),
    /// The start of a response, and nothing more on an open connection.
    Stalled(String),
    /// The same bytes without end.
    Endless(&'static [u8]),
    /// A complete response with this text, once the receiver is notified.
    Later(Arc<Notify>, String),
    /// Nothing, on an open connection.
    Silence,
}

/// A running kubelet; it stops when the value is dropped.
pub(super) struct Kubelet {
    pub(super) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Starts a kubelet with a certificate of `authority` for these names and addresses.
    pub(super) async fn start(authority: &Authority, names: &[&str], reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (certificate, key) = authority.server(names);
        let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen, reply) = (acceptor.clone(), Arc::clone(&seen), reply.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        // The client may close the connection at any time.
                        let _ = serve(stream, &seen, reply).await;
                    }
                });
            }
        });

        Self {
            address,
            heads,
            task,
        }
    }

    /// Returns the heads of the requests so far.
    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    heads: &Mutex<Vec<String>>,
    reply: Reply,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    heads.lock().unwrap().push(String::from_utf8(head).unwrap());
    let start = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n";
    let (response, is_open) = match reply {
        Reply::Text(text) => {
            let len = text.len();
            (format!("{start}content-length: {len}\r\n\r\n{text}"), false)
        }
        Reply::Later(notify, text) => {
            notify.notified().await;
            let len = text.len();
            (format!("{start}content-length: {len}\r\n\r\n{text}"), false)
        }
        Reply::Status(status) => (
            format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"),
            false,
        ),
        Reply::Truncated(text) => {
            let len = text.len() + 100;
            (format!("{start}content-length: {len}\r\n\r\n{text}"), false)
        }
        Reply::Stalled(text) => {
            let len = text.len() + 100;
            (format!("{start}content-length: {len}\r\n\r\n{text}"), true)
        }
        Reply::Endless(bytes) => {
            stream.write_all(format!("{start}\r\n").as_bytes()).await?;
            loop {
                stream.write_all(bytes).await?;
            }
        }
        Reply::Silence => (String::new(), true),
    };
    stream.write_all(response.as_bytes()).await?;
    stream.flush().await?;
    if is_open {
        // Ends when the client closes the connection.
        while stream.read(&mut [0; 64]).await? > 0 {}
    }
    stream.shutdown().await
}
