//! Reads the request line and the `Host` header of a request.

use std::io::{self, Read};

/// The maximum length of a request's head, in bytes. The laboratory's clients send less.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// The parts of a request that the response needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The HTTP method, such as `GET`.
    pub(crate) method: String,
    /// The path of the URL, without the query.
    pub(crate) path: String,
    /// The value of the `Host` header, which is empty if the header is missing.
    pub(crate) host: String,
}

/// The reason why a request cannot be read.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The client closed the connection or timed out, so no response is sent.
    Gone,
    /// The head exceeds [`HEAD_BYTES_MAX`].
    TooLong,
    /// The head does not follow the syntax of HTTP.
    Malformed,
}

impl Request {
    /// Reads the head of a request up to its empty line, but not the body.
    ///
    /// # Errors
    ///
    /// Returns the reason if the request cannot be read.
    pub(crate) fn read(from: &mut impl Read) -> Result<Self, Refusal> {
        let mut head = Vec::new();
        let mut chunk = [0; 1024];
        let end = loop {
            if let Some(end) = end_of(&head) {
                break end;
            }
            if head.len() >= HEAD_BYTES_MAX {
                return Err(Refusal::TooLong);
            }
            match from.read(&mut chunk) {
                Ok(0) => return Err(Refusal::Gone),
                Ok(count) => head.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Refusal::Gone),
            }
        };

        Self::parse(&head[..end]).ok_or(Refusal::Malformed)
    }

    fn parse(head: &[u8]) -> Option<Self> {
        let mut lines = str::from_utf8(head).ok()?.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        let (path, _query) = target.split_once('?').unwrap_or((target, ""));
        let host = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("host"))
            .map_or("", |(_, value)| value.trim());

        Some(Self {
            method: method.to_owned(),
            path: path.to_owned(),
            host: host.to_owned(),
        })
    }
}

fn end_of(head: &[u8]) -> Option<usize> {
    head.windows(4).position(|bytes| bytes == b"\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_host_are_read_from_among_other_headers() {
        let mut text =
            &b"GET /a/b?c=d HTTP/1.1\r\naccept: */*\r\nhOsT:  web.test:80 \r\n\r\nbody"[..];

        let request = Request::read(&mut text).unwrap();

        assert_eq!(request.path, "/a/b");
        assert_eq!(request.host, "web.test:80");
        assert_eq!(request.method, "GET");
    }

    #[test]
    fn a_head_may_come_byte_by_byte() {
        let mut slow = ByteByByte(b"GET / HTTP/1.0\r\n\r\n");

        assert_eq!(Request::read(&mut slow).unwrap().host, "");
    }

    #[test]
    fn a_head_without_end_is_refused_at_the_limit() {
        let mut endless = io::repeat(b'a');

        let refusal = Request::read(&mut endless).unwrap_err();

        assert!(matches!(refusal, Refusal::TooLong));
    }

    #[test]
    fn malformed_requests_are_refused() {
        for text in [
            "\r\n\r\n",
            "GET /\r\n\r\n",
            "GET / / HTTP/1.1\r\n\r\n",
            "GET / SSH-2\r\n\r\n",
        ] {
            let refusal = Request::read(&mut text.as_bytes()).unwrap_err();
            assert!(matches!(refusal, Refusal::Malformed), "{text:?}");
        }
    }

    #[test]
    fn a_closed_connection_gets_no_response() {
        let refusal = Request::read(&mut &b"GET / HT"[..]).unwrap_err();

        assert!(matches!(refusal, Refusal::Gone));
    }

    struct ByteByByte(&'static [u8]);

    impl Read for ByteByByte {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }
}
