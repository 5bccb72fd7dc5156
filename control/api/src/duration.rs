//! Durations as Kubernetes writes them, for example `10m` or `1h30m`.

use std::time::Duration;

/// Parses a duration, which is zero or longer.
///
/// # Errors
///
/// Returns a message with the text, and `example` as a valid one.
pub fn parse(text: &str, example: &str) -> Result<Duration, String> {
    let duration: kube::core::Duration = text
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is not a duration: use one like {example}"))?;
    if duration.is_negative() {
        return Err(format!(
            "`{text}` is negative: use a duration like {example}"
        ));
    }

    Ok(duration.into())
}
