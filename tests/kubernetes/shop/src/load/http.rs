//! A client of HTTP/1.1 with a connection for each request, and cookies.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time limit of a request, including that of the connection.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// The maximum length of a response in bytes.
const RESPONSE_MAX: u64 = 1 << 20;

/// The latency of a successful request, or the reason of a failure.
pub(super) type Exchange = Result<Duration, String>;

/// A session of a browser.
pub(super) struct Session<'a> {
    address: &'a str,
    cookies: BTreeMap<String, String>,
}

impl<'a> Session<'a> {
    /// Creates a session without cookies.
    pub(super) fn new(address: &'a str) -> Self {
        Self {
            address,
            cookies: BTreeMap::new(),
        }
    }

    /// Sends a request. Its response must be a page that contains `expected`, or a redirection.
    pub(super) async fn request(
        &mut self,
        method: &str,
        path: &str,
        form: &str,
        expected: &str,
    ) -> Exchange {
        let start = Instant::now();
        let work = exchange(self.address, self.encode(method, path, form));
        let response = match timeout(REQUEST_MAX, work).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(format!("{method} {path}: {error}")),
            Err(_) => return Err(format!("{method} {path}: no response within 10 s")),
        };
        let latency = start.elapsed();

        let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
        let status = head.split(' ').nth(1).unwrap_or("none");
        if !["200", "303"].contains(&status) {
            return Err(format!("{method} {path}: status {status}"));
        }
        if !body.contains(expected) {
            return Err(format!("{method} {path}: the page has no {expected:?}"));
        }
        for line in head.lines() {
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("set-cookie")
                && let Some((name, value)) =
                    value.split(';').next().and_then(|it| it.split_once('='))
            {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }

        Ok(latency)
    }

    fn encode(&self, method: &str, path: &str, form: &str) -> String {
        let cookies = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let cookies = cookies.collect::<Vec<_>>().join("; ");

        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nCookie: {cookies}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            self.address,
            form.len()
        )
    }
}

async fn exchange(address: &str, request: String) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream
        .take(RESPONSE_MAX)
        .read_to_string(&mut response)
        .await?;

    Ok(response)
}
