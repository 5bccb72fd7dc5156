//! Tests of values that the chart must refuse with a helpful message.

use super::name;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

/// The beginning of the first line of a file with refused values. The rest of the line must occur
/// in helm's error.
const EXPECTS: &str = "# refused: ";

/// Returns a problem if helm accepts the values, or if helm's error lacks the expected words.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or if its first line does not begin with
/// [`EXPECTS`].
pub(super) fn problem(values: &Path, rendered: Result<String>) -> Result<Option<String>> {
    let file = name(values);
    let text = fs::read_to_string(values).with_context(|| format!("failed to read {file}"))?;
    let words = expected(&text)
        .with_context(|| format!("{file}: the first line must be `{EXPECTS}WORDS`"))?;

    Ok(match rendered {
        Ok(_) => Some(format!(
            "{file}: the chart accepts values that it must refuse"
        )),
        Err(error) => {
            let message = error.to_string();
            let is_expected = message.contains(words);
            (!is_expected).then(|| format!("{file}: {words:?} is not in the message: {message}"))
        }
    })
}

fn expected(text: &str) -> Option<&str> {
    text.lines().next()?.strip_prefix(EXPECTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_has_the_expected_words() {
        assert_eq!(expected("# refused: /ipam\nipam: 1\n"), Some("/ipam"));
        assert_eq!(expected("ipam: 1\n"), None);
    }
}
