//! Causes of errors.

use std::error::Error;
use std::io;
use std::iter::successors;

/// Returns an error and its causes.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        let error: &'a (dyn Error + 'static) = *error;
        // The source of an `io::Error` is the source of the error that it contains.
        let contained = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        match contained {
            Some(contained) => Some(contained),
            None => error.source(),
        }
    })
}

/// Returns the error of type `E` that caused `error`, or is it.
pub fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// Returns the messages of an error and its causes, without those that another one contains.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error).map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<Failure>>,
    }

    #[test]
    fn a_chain_has_each_message_once() {
        let failure = |text, source: Option<Failure>| Failure {
            text,
            source: source.map(Box::new),
        };
        let last = failure("refused", None);
        let error = failure("failed to send", Some(failure("failed", Some(last))));

        assert_eq!(chain(&error), "failed to send: refused");
        assert_eq!(causes(&error).count(), 3);
    }
}
