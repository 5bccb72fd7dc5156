//! Serves a bounded number of connections at a time.

use crate::identity::Identity;
use crate::request::{Refusal, Request};
use crate::response::Response;
use std::io::{self, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The number of connections that are served in parallel. Further connections wait in the backlog.
const THREADS: usize = 16;

/// The stack size of a thread in bytes, which suffices for a head of 8 KiB and a response.
const STACK_BYTES: usize = 128 * 1024;

/// The time-out for receiving a request, and for sending the response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The delay after an error of the listening socket, such as too many open files.
const RETRY: Duration = Duration::from_millis(100);

/// Starts the threads, which serve connections until the process ends.
///
/// # Errors
///
/// Returns the kernel's error if a thread cannot be created.
pub(crate) fn start(listener: TcpListener, identity: Identity) -> io::Result<()> {
    let shared = Arc::new((listener, identity));
    for _ in 0..THREADS {
        let shared = Arc::clone(&shared);
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let (listener, identity) = &*shared;
                loop {
                    match listener.accept() {
                        Ok((stream, client)) => serve(stream, client, identity),
                        Err(error) if is_transient(&error) => {}
                        Err(_) => thread::sleep(RETRY),
                    }
                }
            })?;
    }

    Ok(())
}

/// Returns whether the error concerns only a connection that ended before `accept`.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn serve(stream: TcpStream, client: SocketAddr, identity: &Identity) {
    let mut timed = Timed {
        stream: &stream,
        deadline: Instant::now() + TIMEOUT,
    };
    let response = match Request::read(&mut timed) {
        Ok(request) => Response::to(&request, client, identity),
        Err(Refusal::Gone) => return,
        Err(Refusal::TooLong) => Response::refused("431 Request Header Fields Too Large"),
        Err(Refusal::Malformed) => Response::refused("400 Bad Request"),
    };

    let is_refused = response.is_refused();
    // A failed write concerns only this client.
    let _ = stream
        .set_write_timeout(Some(TIMEOUT))
        .and_then(|()| (&stream).write_all(&response.into_bytes()))
        .and_then(|()| stream.shutdown(Shutdown::Write));
    if is_refused {
        // If unread data were left, closing would reset the connection and the client might lose
        // the response. The server therefore reads the rest of the request until the deadline.
        let _ = io::copy(&mut timed.take(DISCARDED_BYTES_MAX), &mut io::sink());
    }
}

/// The maximum number of bytes of an unexpected body that are read before the connection is closed.
const DISCARDED_BYTES_MAX: u64 = 64 * 1024;

/// A stream with a single deadline for all reads.
struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;

        self.stream.read(buffer)
    }
}
