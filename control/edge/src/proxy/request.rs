//! The head of a request: request line and header fields, up to the empty line.
//!
//! Only the method matters. The target and the header fields are not interpreted, because each connection leads to the
//! API server.

/// Maximum length of the head of a request, in bytes.
pub(crate) const HEAD_LEN_MAX: usize = 8 * 1024;

const HEAD_END: &[u8] = b"\r\n\r\n";
const LINE_END: &[u8] = b"\r\n";

/// Reads the head of a request in pieces of any length.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    bytes: Vec<u8>,
}

/// State of the head after a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More bytes are needed.
    Incomplete,
    /// The head is that of a CONNECT request.
    Connect {
        /// The bytes after the head, which the client has sent before the response.
        early_data: Vec<u8>,
    },
    /// The request must be refused.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The first line is no request line of HTTP.
    Malformed,
    /// The method is not CONNECT.
    Method,
    /// The head is longer than [`HEAD_LEN_MAX`].
    TooLong,
    /// The version is not HTTP/1.0 or HTTP/1.1.
    Version,
}

impl HeadReader {
    /// Adds the next bytes of the client. Nothing may be added after the head is complete or refused.
    ///
    /// A refusal waits for the end of the head, so that the client has sent the request before it gets the response.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Progress {
        // The end may begin in an earlier piece.
        let searched = self.bytes.len().saturating_sub(HEAD_END.len() - 1);
        self.bytes.extend_from_slice(piece);
        let end = find(&self.bytes[searched..], HEAD_END).map(|at| searched + at + HEAD_END.len());

        match end {
            Some(end) if end <= HEAD_LEN_MAX => self.complete(end),
            None if self.bytes.len() < HEAD_LEN_MAX => Progress::Incomplete,
            Some(_) | None => Progress::Refused(Refusal::TooLong),
        }
    }

    fn complete(&mut self, end: usize) -> Progress {
        let early_data = self.bytes.split_off(end);
        match check(&self.bytes) {
            Ok(()) => Progress::Connect { early_data },
            Err(refusal) => Progress::Refused(refusal),
        }
    }
}

/// Checks the request line of a complete head (RFC 9112, section 3).
fn check(head: &[u8]) -> Result<(), Refusal> {
    let line = find(head, LINE_END).map_or(head, |end| &head[..end]);
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Malformed);
    };
    if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) {
        return Err(Refusal::Malformed);
    }
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(Refusal::Malformed);
    }
    match version {
        b"HTTP/1.1" | b"HTTP/1.0" => {}
        _ if version.starts_with(b"HTTP/") => return Err(Refusal::Version),
        _ => return Err(Refusal::Malformed),
    }

    // Methods are case-sensitive.
    if method == b"CONNECT" {
        Ok(())
    } else {
        Err(Refusal::Method)
    }
}

/// Returns whether a byte may be in a method (`tchar` in RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
}

#[cfg(test)]
mod tests;
