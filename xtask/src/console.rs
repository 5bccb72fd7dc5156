//! Progress messages, which are coloured on a terminal and plain otherwise.
//!
//! Progress goes to standard error, so that standard output contains only results.

use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::time::{Duration, Instant};

pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const TITLE: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Prints the title of a step.
pub(crate) fn step(what: impl Display) {
    anstream::eprintln!("{TITLE}==> {what}{TITLE:#}");
}

/// Prints a detail of the current step.
pub(crate) fn note(what: impl Display) {
    anstream::eprintln!("    {what}");
}

/// Prints that a step succeeded, and its duration.
pub(crate) fn done(what: impl Display, took: Duration) {
    let took = seconds(took);
    anstream::eprintln!("    {GOOD}ok{GOOD:#} {what} {FAINT}({took}){FAINT:#}");
}

pub(crate) fn failed(what: impl Display, took: Duration) {
    let took = seconds(took);
    anstream::eprintln!("    {BAD}FAILED{BAD:#} {what} {FAINT}({took}){FAINT:#}");
}

/// Prints an error and all its causes.
pub(crate) fn failure(error: &anyhow::Error) {
    anstream::eprintln!("{BAD}error:{BAD:#} {error:#}");
}

/// Formats a duration as `1.2 s` or `2 min 05 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

/// A counter for the numbered steps of a command that takes minutes.
#[derive(Debug)]
pub(crate) struct Steps {
    total: u32,
    reached: u32,
    start: Instant,
}

impl Steps {
    pub(crate) fn new(total: u32) -> Self {
        Self {
            total,
            reached: 0,
            start: Instant::now(),
        }
    }

    /// Prints the next step with its number and the elapsed time.
    pub(crate) fn next(&mut self, what: impl Display) {
        let line = self.advance(what, self.start.elapsed());
        anstream::eprintln!("{TITLE}{line}{TITLE:#}");
    }

    fn advance(&mut self, what: impl Display, elapsed: Duration) -> String {
        self.reached += 1;

        format!(
            "[step {} of {}, after {}] {what}",
            self.reached,
            self.total,
            seconds(elapsed)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_show_their_number_and_the_elapsed_time() {
        let mut steps = Steps::new(2);

        let first = steps.advance("build", Duration::ZERO);
        let second = steps.advance("run", Duration::from_secs(61));

        assert_eq!(first, "[step 1 of 2, after 0.0 s] build");
        assert_eq!(second, "[step 2 of 2, after 1 min 01 s] run");
    }

    #[test]
    fn a_minute_or_more_is_shown_in_minutes() {
        assert_eq!(seconds(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 05 s");
    }
}
