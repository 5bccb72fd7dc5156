//! Copies between two byte streams until both have ended.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::{Instant, sleep_until, timeout};

/// Buffer of each direction, in bytes. A side that does not read makes the other side wait.
const BUFFER_LEN: usize = 16 << 10;

/// Durations that end streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Without data in both directions, as that of a kubelet (`--streaming-connection-idle-timeout`).
    pub(crate) idle: Duration,
    /// After one direction has ended or failed.
    pub(crate) half_closed: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(4 * 3600),
            half_closed: Duration::from_secs(10),
        }
    }
}

/// Copies in both directions until both have ended or a timeout is over. After the failure of one direction, the other
/// one still delivers what was sent: a provider that has closed its connection refuses further bytes of the client, while
/// the last output of a command may wait to be read.
pub(crate) async fn splice<A, B>(client: A, provider: B, timeouts: Timeouts)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let activity = Mutex::new(Instant::now());
    let (from_client, to_client) = split(client);
    let (from_provider, to_provider) = split(provider);
    let mut up = std::pin::pin!(copy(from_client, to_provider, &activity));
    let mut down = std::pin::pin!(copy(from_provider, to_client, &activity));
    let copied = async {
        let is_up = tokio::select! {
            () = up.as_mut() => true,
            () = down.as_mut() => false,
        };
        let rest = async {
            match is_up {
                true => down.await,
                false => up.await,
            }
        };
        // The end of the other direction and the timeout end the streams alike.
        let _ = timeout(timeouts.half_closed, rest).await;
    };
    tokio::select! {
        () = copied => {}
        () = idle(&activity, timeouts.idle) => tracing::debug!("closing a stream without data"),
    }
}

/// Copies until the sender ends its direction or a side fails, and then ends the direction at the receiver.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Mutex<Instant>,
) {
    if let Err(error) = pass_on(&mut from, &mut to, activity).await {
        tracing::debug!(%error, "a direction of a stream has failed");
    }
    if let Err(error) = to.shutdown().await {
        tracing::debug!(%error, "failed to end a direction of a stream");
    }
}

async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Mutex<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
        *activity.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// Completes when there was no data for too long.
async fn idle(activity: &Mutex<Instant>, limit: Duration) {
    loop {
        let last = *activity.lock().unwrap_or_else(PoisonError::into_inner);
        let end = last + limit;
        if end <= Instant::now() {
            return;
        }
        sleep_until(end).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;

    /// Returns the far ends of both streams.
    fn spliced() -> (DuplexStream, DuplexStream, JoinHandle<()>) {
        let (client, near) = duplex(64);
        let (provider, far) = duplex(64);
        let task = tokio::spawn(splice(near, far, Timeouts::default()));
        (client, provider, task)
    }

    async fn received(stream: &mut DuplexStream, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_in_both_directions_and_the_last_ones_after_an_end() {
        let (mut client, mut provider, task) = spliced();
        client.write_all(b"SYN_STREAM").await.unwrap();
        assert_eq!(received(&mut provider, 10).await, b"SYN_STREAM");
        client.shutdown().await.unwrap();
        assert_eq!(provider.read(&mut [0; 8]).await.unwrap(), 0);

        provider.write_all(b"SYN_REPLY").await.unwrap();
        assert_eq!(received(&mut client, 9).await, b"SYN_REPLY");
        drop(provider);
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_output_of_a_provider_that_is_gone_reaches_a_client_that_still_sends() {
        let (mut client, near) = duplex(8);
        let (mut provider, far) = duplex(1024);
        let output: Vec<u8> = (0..200).collect();
        provider.write_all(&output).await.unwrap();
        drop(provider);
        client.write_all(b"ping").await.unwrap();
        let task = tokio::spawn(splice(near, far, Timeouts::default()));

        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();

        assert_eq!(received, output);
        drop(client);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_does_not_end_after_the_other_one_is_closed() {
        let (client, mut provider, task) = spliced();
        let start = Instant::now();
        drop(client);

        task.await.unwrap();

        assert!(start.elapsed() <= Timeouts::default().half_closed + Duration::from_secs(1));
        assert_eq!(provider.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn data_defers_the_end_of_an_idle_stream() {
        let (mut client, mut provider, task) = spliced();
        let (start, idle) = (Instant::now(), Timeouts::default().idle);
        tokio::time::advance(idle / 2).await;
        provider.write_all(b"x").await.unwrap();
        received(&mut client, 1).await;

        task.await.unwrap();

        assert!(start.elapsed() >= idle * 3 / 2);
    }
}
