//! Serves connections, a bounded number at a time.

use crate::answer::Answer;
use crate::identity::Identity;
use crate::request::{Refusal, Request};
use std::io::{self, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How many connections are served at once; more wait in the kernel. Enough for the
/// laboratory's clients, and each costs no more than its stack.
const THREADS: usize = 16;

/// What a thread needs: a head of 8 KiB and an answer.
const STACK_BYTES: usize = 128 * 1024;

/// How long a client may take to ask, and to take its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// After an error that concerns no single connection, such as too many open files,
/// an immediate retry would only take time from what could resolve it.
const RETRY: Duration = Duration::from_millis(100);

/// Starts the threads, which serve until the process ends.
///
/// # Errors
///
/// Returns the kernel's error if it refuses a thread.
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
                        Err(error) if is_passing(&error) => {}
                        Err(_) => thread::sleep(RETRY),
                    }
                }
            })?;
    }

    Ok(())
}

/// Errors of one connection: it broke before it was accepted.
fn is_passing(error: &io::Error) -> bool {
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
        deadline: Instant::now() + PATIENCE,
    };
    let answer = match Request::read(&mut timed) {
        Ok(request) => Answer::to(&request, client, identity),
        Err(Refusal::Gone) => return,
        Err(Refusal::TooLong) => Answer::refused("431 Request Header Fields Too Large"),
        Err(Refusal::Malformed) => Answer::refused("400 Bad Request"),
    };

    let is_refused = answer.is_refused();
    // A client that does not take its answer loses it, and nobody else does.
    let _ = stream
        .set_write_timeout(Some(PATIENCE))
        .and_then(|()| (&stream).write_all(&answer.into_bytes()))
        .and_then(|()| stream.shutdown(Shutdown::Write));
    if is_refused {
        // More may come than was read. Closing before would reset the connection, and
        // the client might lose the answer: it gets the rest of its time to close.
        let _ = io::copy(&mut timed.take(DISCARDED_BYTES_MAX), &mut io::sink());
    }
}

/// How much of a body that nobody asked for is read before the connection is closed.
const DISCARDED_BYTES_MAX: u64 = 64 * 1024;

/// A stream that must have been read by a deadline, however little comes at a time.
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
