//! A TCP relay in front of a server, which delays new connections or silences existing ones.

use super::server::Server;
use kube::Config;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Stops when dropped.
pub(super) struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    server: SocketAddr,
    accepted: watch::Sender<usize>,
    /// The numbers of the connections that wait before they reach the server, from 0.
    held: watch::Sender<Range<usize>>,
    /// The number of connections that are silent: all before this one.
    silent: watch::Sender<usize>,
}

impl Relay {
    pub(super) async fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared {
            server: server.address,
            accepted: watch::Sender::new(0),
            held: watch::Sender::new(0..0),
            silent: watch::Sender::new(0),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));

        Self {
            address,
            shared,
            task,
        }
    }

    /// Returns the configuration of a client that connects to the relay.
    pub(super) fn config(&self, server: &Server) -> Config {
        let mut config = server.config();
        let url = format!("https://{}", self.address);
        config.cluster_url = url.parse().expect("a URI");
        config
    }

    /// Lets connections of these numbers wait before they reach the server, and no others.
    pub(super) fn hold(&self, held: Range<usize>) {
        self.shared.held.send_replace(held);
    }

    /// Forwards nothing more on the present connections, and keeps them open.
    pub(super) fn silence(&self) {
        self.shared.silent.send_replace(self.accepted());
    }

    /// Returns the number of connections since the start.
    pub(super) fn accepted(&self) -> usize {
        *self.shared.accepted.borrow()
    }

    /// Waits until `count` connections are accepted.
    pub(super) async fn accepts(&self, count: usize) {
        let mut accepted = self.shared.accepted.subscribe();
        let wait = accepted.wait_for(|accepted| *accepted >= count);
        wait.await.expect("the relay runs");
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    for number in 0.. {
        let (stream, _) = listener.accept().await.expect("a connection");
        shared.accepted.send_replace(number + 1);
        tokio::spawn(forward(stream, number, shared.clone()));
    }
}

async fn forward(mut client: TcpStream, number: usize, shared: Arc<Shared>) {
    let mut held = shared.held.subscribe();
    let mut silent = shared.silent.subscribe();
    // The sender is in `shared`.
    let is_free = |held: &Range<usize>| !held.contains(&number);
    held.wait_for(is_free).await.expect("a sender");
    let mut server = TcpStream::connect(shared.server).await.expect("the server");
    let is_silent = tokio::select! {
        // An error means that one side has closed the connection.
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => false,
        _ = silent.wait_for(|silent| *silent > number) => true,
    };
    if is_silent {
        std::future::pending::<()>().await;
    }
}
