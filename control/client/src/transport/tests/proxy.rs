//! An HTTP proxy that only knows CONNECT.

use http::Uri;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Stops when dropped.
pub(super) struct Proxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let log = requests.clone();
        let connections = Arc::<AtomicUsize>::default();
        let accepted = connections.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                accepted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(forward(stream, log.clone()));
            }
        });

        Self {
            address,
            requests,
            connections,
            task,
        }
    }

    pub(super) fn url(&self, userinfo: &str) -> Uri {
        let url = format!("http://{userinfo}@{}", self.address);
        url.parse().expect("a URI")
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of connections so far.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the heads of all requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic in the proxy").clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut client: TcpStream, log: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    let head = String::from_utf8(head).expect("a head in ASCII");
    let target = head.split(' ').nth(1).expect("a target").to_owned();
    log.lock().expect("no panic in the proxy").push(head);

    let mut server = TcpStream::connect(target).await.expect("the server");
    client
        .write_all(b"HTTP/1.1 200 OK\r\n\r\n")
        .await
        .expect("a client that waits");
    // An error means that one side has closed the connection.
    copy_bidirectional(&mut client, &mut server).await.ok();
}
