//! Values that the chart must refuse, with words that help.

use super::name;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

/// Starts the first line of such a file; what follows must be in helm's answer.
const EXPECTS: &str = "# refused: ";

/// Returns what is wrong with helm's answer to values that it must refuse.
///
/// # Errors
///
/// Returns an error if the file cannot be read or does not say what it expects.
pub(super) fn problem(values: &Path, answer: Result<String>) -> Result<Option<String>> {
    let file = name(values);
    let text = fs::read_to_string(values).with_context(|| format!("failed to read {file}"))?;
    let words = expected(&text)
        .with_context(|| format!("{file}: the first line must be `{EXPECTS}WORDS`"))?;

    Ok(match answer {
        Ok(_) => Some(format!(
            "{file}: the chart takes values that it must refuse"
        )),
        Err(error) => {
            let told = error.to_string();
            let is_told = told.contains(words);
            (!is_told).then(|| format!("{file}: {words:?} is not in the answer: {told}"))
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
    fn the_first_line_says_what_is_expected() {
        assert_eq!(expected("# refused: /ipam\nipam: 1\n"), Some("/ipam"));
        assert_eq!(expected("ipam: 1\n"), None);
    }
}
