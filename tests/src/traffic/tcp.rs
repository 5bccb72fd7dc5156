//! Generates and measures TCP traffic. A server checks every byte. Clients send single transfers,
//! or long streams whose progress is measured.
//!
//! The sender writes the numbers 0, 1, 2, .. with eight bytes each. The server compares the
//! received bytes with these numbers, so it detects a lost, repeated, reordered or changed byte at
//! once.

use crate::lab::netns::Netns;
use crate::lab::wait;
use anyhow::{Context as _, Result, bail, ensure};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A server that checks each received byte, and records the addresses of its clients.
///
/// On each connection, the server repeatedly sends the number of correct bytes so far. It sends the
/// final number when the client has shut down its side, or after the first wrong byte.
#[derive(Debug)]
pub struct Server {
    address: SocketAddrV4,
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    clients: Mutex<Vec<SocketAddr>>,
    received: AtomicU64,
    stop: AtomicBool,
}

impl Server {
    /// Starts to listen at `address`. Port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not local, or if the port is in use.
    pub fn start(netns: &Netns, address: impl Into<Ipv4Addr>, port: u16) -> Result<Self> {
        let address = address.into();
        let listener = netns
            .run(|| {
                let listener = TcpListener::bind((address, port))?;
                listener.set_nonblocking(true)?;
                Ok::<_, io::Error>(listener)
            })
            .with_context(|| format!("failed to listen at {address}:{port}"))?;
        let SocketAddr::V4(address) = listener.local_addr().context("a listener's address")? else {
            bail!("{address} is not an IPv4 address");
        };

        let shared = Arc::new(Shared::default());
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, &shared))
        };

        Ok(Self {
            address,
            shared,
            worker: Some(worker),
        })
    }

    /// Returns the address and port at which the server listens in its own namespace.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Returns the addresses and ports of the clients, in the order of their connections.
    pub fn clients(&self) -> Vec<SocketAddr> {
        lock(&self.shared.clients).clone()
    }

    /// Returns the addresses of the clients without ports, in the order of their connections.
    pub fn client_addresses(&self) -> Vec<IpAddr> {
        self.clients().iter().map(SocketAddr::ip).collect()
    }

    /// Returns the number of correct bytes received on all connections.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// The result of a transfer or a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Number of bytes sent, all of which the server has received correctly.
    pub bytes: u64,
    /// Time from the connection to the server's final number of correct bytes.
    pub elapsed: Duration,
    /// Longest time between two reports of the server that show progress. Reports arrive every
    /// [`SAMPLE`].
    pub longest_gap: Duration,
}

impl Outcome {
    /// Returns the mean rate in payload bits per second.
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64()
    }
}

/// Sends `bytes` bytes to a [`Server`], and waits until the server has checked all of them.
///
/// # Errors
///
/// Returns an error if the connection fails, or if the server has received a wrong byte.
pub fn transfer(netns: &Netns, to: impl Into<SocketAddrV4>, bytes: u64) -> Result<Outcome> {
    let to = to.into();
    let mut connection = connect(netns, to)?;
    let started = Instant::now();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut sent = 0;
    while sent < bytes {
        let length = usize::try_from(bytes - sent).map_or(CHUNK_BYTES, |n| n.min(CHUNK_BYTES));
        fill(&mut buffer[..length], sent);
        connection
            .write_all(&buffer[..length])
            .with_context(|| format!("failed to send after {sent} bytes"))?;
        sent += length as u64;
    }
    judge(connection, sent)?;

    Ok(Outcome {
        bytes: sent,
        elapsed: started.elapsed(),
        longest_gap: Duration::ZERO,
    })
}

/// A connection to a [`Server`] that sends until [`Stream::finish`] is called or the value is
/// dropped.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<StreamState>,
    worker: Option<JoinHandle<Result<Outcome>>>,
}

#[derive(Debug, Default)]
struct StreamState {
    acknowledged: AtomicU64,
    /// Longest time without progress, in microseconds.
    longest_gap: AtomicU64,
    stop: AtomicBool,
}

impl Stream {
    /// Connects to `to`, and starts to send `rate` bytes per second.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection fails.
    pub fn start(netns: &Netns, to: impl Into<SocketAddrV4>, rate: u64) -> Result<Self> {
        let connection = connect(netns, to.into())?;
        let shared = Arc::new(StreamState::default());
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || stream(connection, rate, &shared))
        };

        Ok(Self {
            shared,
            worker: Some(worker),
        })
    }

    /// Returns the number of correct bytes that the server has reported so far.
    pub fn progress(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// Returns the longest time without progress since the last call. The current time without
    /// progress does not count until the stream makes progress again.
    pub fn take_longest_gap(&self) -> Duration {
        Duration::from_micros(self.shared.longest_gap.swap(0, Ordering::Relaxed))
    }

    /// Waits until the server reports more correct bytes than at the time of the call.
    ///
    /// # Errors
    ///
    /// Returns an error if the stream makes no progress within `timeout`.
    pub fn wait_for_progress(&self, timeout: Duration) -> Result<()> {
        let before = self.progress();
        wait::until(timeout, "a stream to make progress", || {
            Ok(self.progress() > before)
        })
    }

    /// Ends the stream, waits until the server has checked all bytes, and returns the result.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection has failed, or if the server has received a wrong byte.
    pub fn finish(mut self) -> Result<Outcome> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let Some(worker) = self.worker.take() else {
            bail!("the stream has ended");
        };
        match worker.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("the stream panicked"),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Opens a TCP connection from a namespace.
///
/// # Errors
///
/// Returns an error if the connection is refused, or not open within [`CONNECT_TIMEOUT`].
pub fn connect(netns: &Netns, to: SocketAddrV4) -> Result<TcpStream> {
    netns
        .run(|| {
            let connection = TcpStream::connect_timeout(&to.into(), CONNECT_TIMEOUT)?;
            connection.set_nodelay(true)?;
            connection.set_write_timeout(Some(STALL_TIMEOUT))?;
            connection.set_read_timeout(Some(STALL_TIMEOUT))?;
            Ok::<_, io::Error>(connection)
        })
        .with_context(|| format!("failed to connect {} to {to}", netns.name()))
}

/// Sends `rate` bytes per second until the stream is stopped, and records the server's reports.
fn stream(mut connection: TcpStream, rate: u64, shared: &Arc<StreamState>) -> Result<Outcome> {
    let started = Instant::now();
    let sampler = {
        let (connection, shared) = (connection.try_clone()?, Arc::clone(shared));
        thread::spawn(move || acknowledgements(connection, &shared))
    };

    let mut buffer = vec![0; CHUNK_BYTES];
    let mut sent = 0_u64;
    while !shared.stop.load(Ordering::Relaxed) {
        let due = (started.elapsed().as_secs_f64() * rate as f64) as u64;
        let length = usize::try_from(due.saturating_sub(sent))
            .unwrap_or(CHUNK_BYTES)
            .min(CHUNK_BYTES);
        // Write at most twice per sample. Many small writes would take CPU time from the gateways
        // that the test measures.
        if length < CHUNK_BYTES {
            thread::sleep(SAMPLE / 2);
        }
        if length == 0 {
            continue;
        }
        fill(&mut buffer[..length], sent);
        connection
            .write_all(&buffer[..length])
            .with_context(|| format!("failed to send after {sent} bytes"))?;
        sent += length as u64;
    }

    connection
        .shutdown(Shutdown::Write)
        .context("failed to end a stream")?;
    let (verdict, longest_gap) = match sampler.join() {
        Ok(outcome) => outcome?,
        Err(_) => bail!("the sampler panicked"),
    };
    ensure!(
        verdict == sent,
        "of {sent} bytes sent, byte {verdict} arrived changed or is missing"
    );

    Ok(Outcome {
        bytes: sent,
        elapsed: started.elapsed(),
        longest_gap,
    })
}

/// Reads the server's reports until the server closes the connection.
///
/// Returns the last reported number of correct bytes, and the longest time between two reports with
/// progress.
fn acknowledgements(mut connection: TcpStream, shared: &StreamState) -> Result<(u64, Duration)> {
    let mut total = [0; 8];
    let mut last = 0;
    let mut progress_at = Instant::now();
    let mut longest = Duration::ZERO;
    loop {
        match connection.read_exact(&mut total) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error).context("the server sent no verdict"),
        }
        let now = u64::from_be_bytes(total);
        if now > last {
            // After the client has stopped sending, time without progress is not a gap.
            if !shared.stop.load(Ordering::Relaxed) {
                let gap = progress_at.elapsed();
                let micros = u64::try_from(gap.as_micros()).unwrap_or(u64::MAX);
                shared.longest_gap.fetch_max(micros, Ordering::Relaxed);
                longest = longest.max(gap);
            }
            last = now;
            progress_at = Instant::now();
            shared.acknowledged.store(now, Ordering::Relaxed);
        }
    }

    Ok((last, longest))
}

/// Shuts down the sending side, and checks that the server has received `sent` correct bytes.
fn judge(connection: TcpStream, sent: u64) -> Result<()> {
    connection
        .shutdown(Shutdown::Write)
        .context("failed to end a transfer")?;
    let (verdict, _) = acknowledgements(connection, &StreamState::default())?;
    ensure!(
        verdict == sent,
        "of {sent} bytes sent, byte {verdict} arrived changed or is missing"
    );

    Ok(())
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((connection, from)) => {
                lock(&shared.clients).push(from);
                let shared = Arc::clone(shared);
                // The error is ignored here, because the client reports a failed connection to the
                // test.
                thread::spawn(move || serve(connection, &shared));
            }
            Err(_) => thread::sleep(SAMPLE),
        }
    }
}

/// Checks each received byte, and reports the number of correct bytes every [`SAMPLE`].
fn serve(mut connection: TcpStream, shared: &Shared) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(SAMPLE))?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut total = 0_u64;
    let mut reported = (0, Instant::now());

    while !shared.stop.load(Ordering::Relaxed) {
        match connection.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                let right = matching(&buffer[..length], total);
                total += right as u64;
                shared.received.fetch_add(right as u64, Ordering::Relaxed);
                if right < length {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if total > reported.0 && reported.1.elapsed() >= SAMPLE {
            connection.write_all(&total.to_be_bytes())?;
            reported = (total, Instant::now());
        }
    }

    connection.write_all(&total.to_be_bytes())
}

/// Fills `buffer` with the stream's bytes that start at `offset`.
fn fill(buffer: &mut [u8], offset: u64) {
    let mut at = offset;
    let mut rest = buffer;
    while !rest.is_empty() {
        let number = (at / 8).to_be_bytes();
        let skip = (at % 8) as usize;
        let length = rest.len().min(8 - skip);
        let (head, tail) = rest.split_at_mut(length);
        head.copy_from_slice(&number[skip..skip + length]);
        at += length as u64;
        rest = tail;
    }
}

/// Returns the number of leading bytes in `buffer` that equal the stream's bytes at `offset`.
fn matching(buffer: &[u8], offset: u64) -> usize {
    let mut at = 0;
    while at < buffer.len() {
        let position = offset + at as u64;
        let number = (position / 8).to_be_bytes();
        let expected = &number[(position % 8) as usize..];
        let length = expected.len().min(buffer.len() - at);
        let found = &buffer[at..at + length];
        if found != &expected[..length] {
            let same = found.iter().zip(expected).take_while(|(a, b)| a == b);
            return at + same.count();
        }
        at += length;
    }

    at
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Interval at which a server reports the number of correct bytes.
pub const SAMPLE: Duration = Duration::from_millis(10);

/// Time-out of opening a connection. It allows two retransmissions of a SYN, after 1 and 3 s.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without data after which a connection counts as failed.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);

const CHUNK_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_matches_itself_at_any_offset() {
        for offset in [0, 1, 7, 8, 1001] {
            let mut buffer = [0; 100];
            fill(&mut buffer, offset);

            assert_eq!(matching(&buffer, offset), 100);
        }
    }

    #[test]
    fn the_first_changed_byte_is_detected() {
        let mut buffer = [0; 100];
        fill(&mut buffer, 3);
        buffer[57] ^= 1;

        assert_eq!(matching(&buffer, 3), 57);
    }

    #[test]
    fn a_skipped_number_is_detected() {
        let mut buffer = [0; 64];
        fill(&mut buffer, 8);

        assert!(matching(&buffer, 0) < 8);
    }
}
