//! The question and the answer of a check, on the wire between the nodes of two clusters.
//!
//! ```text
//!  0      4      8       16
//!  | magic | kind | token |
//! ```
//! An answer is as long as its question, so that nobody can use a node to multiply traffic.

/// Length of both in bytes.
pub(crate) const LEN: usize = 16;

/// What both begin with; the digit is the version of the format.
const MAGIC: [u8; 4] = *b"LQE1";

const QUESTION: [u8; 4] = 1u32.to_be_bytes();
const ANSWER: [u8; 4] = 2u32.to_be_bytes();

/// What tells one question from all others, and its answer from a forged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token([u8; 8]);

impl Token {
    /// Creates the token of a number.
    pub(crate) fn new(number: u64) -> Self {
        Self(number.to_be_bytes())
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// It is to be answered.
    Question(Token),
    /// It answers ours, perhaps.
    Answer(Token),
}

/// Returns the question that bears `token`.
pub(crate) fn question(token: Token) -> [u8; LEN] {
    encode(QUESTION, token)
}

/// Returns the answer to the question that bears `token`.
pub(crate) fn answer(token: Token) -> [u8; LEN] {
    encode(ANSWER, token)
}

/// Reads a payload; `None` if it is no message of this version.
pub(crate) fn parse(payload: &[u8]) -> Option<Message> {
    let payload: &[u8; LEN] = payload.try_into().ok()?;
    let (magic, rest) = payload.split_first_chunk()?;
    let (kind, rest) = rest.split_first_chunk()?;
    let token = Token(rest.try_into().ok()?);
    if *magic != MAGIC {
        return None;
    }

    match *kind {
        QUESTION => Some(Message::Question(token)),
        ANSWER => Some(Message::Answer(token)),
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
    fn messages_survive_the_wire() {
        let token = Token::new(0x0102_0304_0506_0708);

        assert_eq!(parse(&question(token)), Some(Message::Question(token)));
        assert_eq!(parse(&answer(token)), Some(Message::Answer(token)));
    }

    proptest! {
        #[test]
        fn all_else_is_no_message(payload: Vec<u8>, at in 0..8usize, flip in 1..=255u8) {
            prop_assert_eq!(parse(&payload), None);
            let mut bent = question(Token::new(7));
            bent[at] ^= flip;
            prop_assert!(!matches!(parse(&bent), Some(Message::Question(_))));
            prop_assert_eq!(parse(&bent[1..]), None);
        }
    }
}
