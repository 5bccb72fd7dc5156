//! A host outside of all clusters that replies by HTTP.

use anyhow::{Context as _, Result};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tests::lab::netns::Netns;

/// The time limit for the head of a request. A client that sends nothing blocks the others.
const HEAD_MAX: Duration = Duration::from_secs(5);

/// A server that replies to each request with the address of the client. Dropping the value stops the server.
pub(crate) struct HttpServer {
    netns: Netns,
    address: SocketAddrV4,
    is_stopped: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts to listen at an address of the network namespace.
    pub(crate) fn start(netns: &Netns, address: Ipv4Addr, port: u16) -> Result<Self> {
        let address = SocketAddrV4::new(address, port);
        let listener = netns
            .run(|| TcpListener::bind(address))
            .with_context(|| format!("failed to listen at {address}"))?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_stopped);
        let worker = thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // A client may have closed its connection. Its own error shows that.
                let _ = stream.and_then(reply);
            }
        });

        Ok(Self {
            netns: netns.clone(),
            address,
            is_stopped,
            worker: Some(worker),
        })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // The connection ends the wait for the next one.
        let last = self.netns.run(|| TcpStream::connect(self.address));
        if let Some(worker) = self.worker.take().filter(|_| last.is_ok()) {
            // The thread does not panic, and a test that ends ignores its result.
            let _ = worker.join();
        }
    }
}

/// Reads the head of a request, and replies `client=ADDRESS`.
fn reply(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(HEAD_MAX))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    let body = format!("client={}\n", stream.peer_addr()?.ip());
    let length = body.len();

    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
