//! The protocol of Redis (RESP2), without input and output.
//!
//! ```text
//! *2\r\n $3\r\nGET\r\n $4\r\ncart\r\n      a command: an array of strings
//! +OK\r\n  -ERR text\r\n  :42\r\n           replies: status, error, integer,
//! $3\r\nmug\r\n  $-1\r\n  *0\r\n            string, no string, array
//! ```

/// The maximum length of a line, without its end.
const LINE_MAX: usize = 512;

/// The maximum length of a string.
const STRING_MAX: usize = 4096;

/// The maximum number of an array's elements. A cart has at most 100 products, which are two
/// elements each.
const ELEMENTS_MAX: usize = 256;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A status such as `OK`, or a string.
    Text(String),
    /// A string that does not exist.
    Null,
    /// An integer.
    Integer(i64),
    /// An array without inner arrays.
    Array(Vec<Reply>),
    /// The server refused the command.
    Error(String),
}

/// The server violates the protocol, or exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid reply: {0}")]
pub(crate) struct RespError(&'static str);

/// Encodes a command.
pub(crate) fn encode(words: &[&str]) -> Vec<u8> {
    let strings = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let text: String = strings.collect();

    format!("*{}\r\n{text}", words.len()).into_bytes()
}

/// Parses the reply at the start of `input`. Returns `None` if the reply is incomplete, otherwise
/// the reply and its length in bytes.
///
/// # Errors
///
/// Returns an error if no further input can complete the reply.
pub(crate) fn parse(input: &[u8]) -> Result<Option<(Reply, usize)>, RespError> {
    let Some((kind, text, mut end)) = line(input)? else {
        return Ok(None);
    };
    if kind != b'*' {
        return element(input);
    }

    let count = length(text, ELEMENTS_MAX)?.ok_or(RespError("an array is missing"))?;
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((reply, length)) = element(&input[end..])? else {
            return Ok(None);
        };
        elements.push(reply);
        end += length;
    }

    Ok(Some((Reply::Array(elements), end)))
}

/// Parses a reply that is not an array.
fn element(input: &[u8]) -> Result<Option<(Reply, usize)>, RespError> {
    let Some((kind, text, end)) = line(input)? else {
        return Ok(None);
    };
    let reply = match kind {
        b'+' => Reply::Text(text.to_owned()),
        b'-' => Reply::Error(text.to_owned()),
        b':' => Reply::Integer(
            text.parse()
                .map_err(|_| RespError("an integer is invalid"))?,
        ),
        b'$' => return string(input, text, end),
        _ => return Err(RespError("the type is unknown")),
    };

    Ok(Some((reply, end)))
}

fn string(input: &[u8], text: &str, start: usize) -> Result<Option<(Reply, usize)>, RespError> {
    let Some(length) = length(text, STRING_MAX)? else {
        return Ok(Some((Reply::Null, start)));
    };
    let end = start + length;
    let Some(terminator) = input.get(end..end + 2) else {
        return Ok(None);
    };
    if terminator != b"\r\n" {
        return Err(RespError("a string is longer than its length"));
    }
    let text =
        str::from_utf8(&input[start..end]).map_err(|_| RespError("a string is not UTF-8"))?;

    Ok(Some((Reply::Text(text.to_owned()), end + 2)))
}

/// Splits a line into its type and text. Returns them with the length of the line and its end.
fn line(input: &[u8]) -> Result<Option<(u8, &str, usize)>, RespError> {
    let limit = input.len().min(LINE_MAX + 2);
    let Some(end) = input[..limit].windows(2).position(|pair| pair == b"\r\n") else {
        return match input.len() {
            0..=LINE_MAX => Ok(None),
            _ => Err(RespError("a line is too long")),
        };
    };
    let line = str::from_utf8(&input[..end]).map_err(|_| RespError("a line is not UTF-8"))?;
    let (kind, text) = line
        .split_at_checked(1)
        .ok_or(RespError("a line has no type"))?;

    Ok(Some((kind.as_bytes()[0], text, end + 2)))
}

/// Parses the length of a string or array. The length -1 means that it does not exist.
fn length(text: &str, max: usize) -> Result<Option<usize>, RespError> {
    if text == "-1" {
        return Ok(None);
    }

    match text.parse() {
        Ok(length) if length <= max => Ok(Some(length)),
        Ok(_) => Err(RespError("a length exceeds its limit")),
        Err(_) => Err(RespError("a length is invalid")),
    }
}

#[cfg(test)]
mod tests;
