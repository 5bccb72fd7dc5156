//! A TCP relay to the API server that can stop to transmit, like a network that is cut.

use anyhow::{Context as _, Result};
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A relay on 127.0.0.1. It ends with the runtime of the test.
pub(crate) struct Relay {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
}

impl Relay {
    /// Starts a relay to the server with this URL.
    pub(crate) async fn start(server: &str) -> Result<Self> {
        let target = server.strip_prefix("https://").context("no HTTPS URL")?;
        let target: SocketAddr = target.parse().context("the URL has no address")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (is_cut, state) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = state.clone();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(target).await {
                        relay(client, server, state).await;
                    }
                });
            }
        });

        Ok(Self { address, is_cut })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Stops to transmit. Connections stay open, and new ones are accepted, without any data.
    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Transmits again. The connections on which one side has sent meanwhile end.
    pub(crate) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

/// Relays both directions until one side ends the connection.
async fn relay(client: TcpStream, server: TcpStream, state: watch::Receiver<bool>) {
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let copied = tokio::select! {
        copied = copy(from_client, to_server, state.clone()) => copied,
        copied = copy(from_server, to_client, state) => copied,
    };
    // Either side may end a connection at any time.
    drop(copied);
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<bool>,
) -> Result<()> {
    let mut data = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut data).await?;
        let was_cut = *state.borrow();
        state.wait_for(|is_cut| !is_cut).await?;
        if length == 0 || was_cut {
            return Ok(());
        }
        to.write_all(&data[..length]).await?;
    }
}
