//! A client of the server.

use super::certificates::Issued;
use super::fixture::DEADLINE;
use crate::server::authority::provider;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// A connection, and the bytes that it has received.
pub(super) struct Stream {
    tls: TlsStream<TcpStream>,
    received: Vec<u8>,
}

impl Stream {
    /// Connects with a client certificate, if any.
    pub(super) async fn connect(address: SocketAddr, client: Option<&Issued>) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        let connector = connector(client);
        let name = ServerName::try_from("127.0.0.1").unwrap();
        Self {
            tls: connector.connect(name, tcp).await.unwrap(),
            received: Vec::new(),
        }
    }

    pub(super) async fn send(&mut self, text: &str) {
        self.tls.write_all(text.as_bytes()).await.unwrap();
    }

    /// Sends a text to a server that may close the connection before.
    pub(super) async fn send_until_closed(&mut self, text: &str) {
        let sent = self.tls.write_all(text.as_bytes());
        let _ = timeout(DEADLINE, sent).await.expect("an end in time");
    }

    /// Reads until a text was received, and returns what precedes it.
    pub(super) async fn until(&mut self, end: &str) -> String {
        loop {
            let windows = &mut self.received.windows(end.len());
            if let Some(start) = windows.position(|it| it == end.as_bytes()) {
                let rest = self.received.split_off(start + end.len());
                let mut text = std::mem::replace(&mut self.received, rest);
                text.truncate(start);
                return String::from_utf8_lossy(&text).into_owned();
            }
            let read = timeout(DEADLINE, self.tls.read_buf(&mut self.received)).await;
            let read = read.unwrap_or_else(|_| panic!("no {end:?} in {:?}", self.received));
            assert!(read.unwrap() > 0, "no {end:?} in {:?}", self.received);
        }
    }

    /// Returns the head of a response.
    pub(super) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// Reads until the server closes the connection.
    pub(super) async fn end(&mut self) -> String {
        // A server that closes a connection with unread data resets it.
        let read = self.tls.read_to_end(&mut self.received);
        let _ = timeout(DEADLINE, read).await.expect("an end in time");
        String::from_utf8(std::mem::take(&mut self.received)).unwrap()
    }

    /// Returns status, head and body of a response.
    pub(super) async fn response(&mut self) -> (u16, String, String) {
        let head = self.head().await;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let header = |name| head.lines().find_map(|line| line.strip_prefix(name));
        let body = if let Some(length) = header("content-length: ") {
            let length = length.parse().unwrap();
            while self.received.len() < length {
                let read = timeout(DEADLINE, self.tls.read_buf(&mut self.received));
                assert!(read.await.unwrap().unwrap() > 0, "the body is incomplete");
            }
            let rest = self.received.split_off(length);
            let body = std::mem::replace(&mut self.received, rest);
            String::from_utf8(body).unwrap()
        } else if header("transfer-encoding: chunked").is_some() {
            let mut body = String::new();
            loop {
                let length = self.until("\r\n").await;
                if length == "0" {
                    break body;
                }
                body += &self.until("\r\n").await;
            }
        } else {
            self.end().await
        };
        (status, head, body)
    }
}

fn connector(client: Option<&Issued>) -> TlsConnector {
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified));
    let config = match client {
        Some(client) => builder
            .with_client_auth_cert(vec![client.certificate.clone()], client.key.clone_key())
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    TlsConnector::from(Arc::new(config))
}

/// Accepts any server, as the API server does without `--kubelet-certificate-authority`.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
