//! What people see: plain when piped, coloured on a terminal.
//!
//! Progress goes to standard error, so that standard output holds results only.

use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::time::Duration;

/// Marks what went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Marks what did not.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
/// Marks headings.
pub(crate) const TITLE: Style = Style::new().bold();
/// Marks what may be skipped while reading.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Announces a step.
pub(crate) fn step(what: impl Display) {
    anstream::eprintln!("{TITLE}==> {what}{TITLE:#}");
}

/// Tells something about the current step.
pub(crate) fn note(what: impl Display) {
    anstream::eprintln!("    {what}");
}

/// Closes a step.
pub(crate) fn done(what: impl Display, took: Duration) {
    let took = seconds(took);
    anstream::eprintln!("    {GOOD}ok{GOOD:#} {what} {FAINT}({took}){FAINT:#}");
}

/// Closes a step that failed.
pub(crate) fn failed(what: impl Display, took: Duration) {
    let took = seconds(took);
    anstream::eprintln!("    {BAD}FAILED{BAD:#} {what} {FAINT}({took}){FAINT:#}");
}

/// Reports an error and all its causes.
pub(crate) fn failure(error: &anyhow::Error) {
    anstream::eprintln!("{BAD}error:{BAD:#} {error:#}");
}

/// Formats a duration as a person would say it.
pub(crate) fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_speech() {
        assert_eq!(seconds(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 05 s");
    }
}
