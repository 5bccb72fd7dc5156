//! A client and the provider that have agreed to switch to another protocol.

use super::streams::StreamSlot;
use hyper::upgrade::{OnUpgrade, Upgraded};

/// Both sides of a stream, before their connections have switched protocols.
pub(crate) struct Tunnel {
    /// Completes when the response was sent to the client.
    pub(crate) client: OnUpgrade,
    /// Completes when the provider's response was received.
    pub(crate) provider: OnUpgrade,
    /// Counts the stream.
    pub(crate) slot: StreamSlot,
}

impl Tunnel {
    /// Returns both byte streams.
    ///
    /// # Errors
    ///
    /// Returns an error if a connection has ended before.
    pub(crate) async fn upgraded(self) -> Result<(Upgraded, Upgraded, StreamSlot), hyper::Error> {
        let (client, provider) = tokio::try_join!(self.client, self.provider)?;
        Ok((client, provider, self.slot))
    }
}
