//! Wire format of the echo messages between the nodes of two clusters, with offsets in bytes.
//!
//! ```text
//!  0      4      8       16
//!  | magic | kind | token |
//! ```
//!
//! A reply has the same length as a request, so that a node cannot be used to amplify traffic.

/// Length of a request or reply in bytes.
pub(crate) const LEN: usize = 16;

/// First bytes of each message. The digit is the version of the format.
const MAGIC: [u8; 4] = *b"LQE1";

const REQUEST: [u8; 4] = 1u32.to_be_bytes();
const REPLY: [u8; 4] = 2u32.to_be_bytes();

/// An unpredictable number that identifies a request. A reply echoes it, so that a host that has
/// not received the request cannot forge a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token([u8; 8]);

impl Token {
    pub(crate) fn new(number: u64) -> Self {
        Self(number.to_be_bytes())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Request(Token),
    Reply(Token),
}

pub(crate) fn request(token: Token) -> [u8; LEN] {
    encode(REQUEST, token)
}

pub(crate) fn reply(token: Token) -> [u8; LEN] {
    encode(REPLY, token)
}

/// Parses a UDP payload. Returns `None` if it is no echo message of this version.
pub(crate) fn parse(payload: &[u8]) -> Option<Message> {
    let payload: &[u8; LEN] = payload.try_into().ok()?;
    let (magic, rest) = payload.split_first_chunk()?;
    let (kind, rest) = rest.split_first_chunk()?;
    let token = Token(rest.try_into().ok()?);
    if *magic != MAGIC {
        return None;
    }

    match *kind {
        REQUEST => Some(Message::Request(token)),
        REPLY => Some(Message::Reply(token)),
        _ => None,
    }
}

fn encode(kind: [u8; 4], Token(token): Token) -> [u8; LEN] {
    let mut payload = [0; LEN];
    payload[..4].copy_from_slice(&MAGIC);
    payload[4..8].copy_from_slice(&kind);
    payload[8..].copy_from_slice(&token);

    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_encoded_message_parses_to_itself() {
        let token = Token::new(0x0102_0304_0506_0708);

        assert_eq!(parse(&request(token)), Some(Message::Request(token)));
        assert_eq!(parse(&reply(token)), Some(Message::Reply(token)));
    }

    proptest! {
        #[test]
        fn other_payloads_do_not_parse(payload: Vec<u8>, at in 0..8usize, flip in 1..=255u8) {
            prop_assert_eq!(parse(&payload), None);
            let mut altered = request(Token::new(7));
            altered[at] ^= flip;
            prop_assert!(!matches!(parse(&altered), Some(Message::Request(_))));
            prop_assert_eq!(parse(&altered[1..]), None);
        }
    }
}
