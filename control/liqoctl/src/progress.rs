//! Prints the progress of a command: upstream's lines and, on a terminal, a spinner with the duration
//! of the current steps.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Duration of a frame of the spinner.
const FRAME: Duration = Duration::from_millis(120);
/// Duration of requests that are not shown.
const MOMENT: Duration = Duration::from_secs(1);
const FRAMES: [char; 4] = ['|', '/', '-', '\\'];

/// The current steps, in order of their start.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());
static TERMINAL: LazyLock<bool> = LazyLock::new(|| match is_output_reserved() {
    true => io::stderr().is_terminal(),
    false => io::stdout().is_terminal(),
});

/// Whether standard output is for an object, which a user may redirect to a file.
static IS_OUTPUT_RESERVED: AtomicBool = AtomicBool::new(false);

struct Running {
    id: u64,
    text: String,
    since: Instant,
}

/// A current step. Dropping the value ends the step without a line.
pub(crate) struct Activity {
    id: u64,
    scope: &'static str,
    since: Instant,
}

/// Prints the progress to standard error from now on, because the command prints an object.
pub(crate) fn reserve_output() {
    IS_OUTPUT_RESERVED.store(true, Ordering::Relaxed);
}

fn is_output_reserved() -> bool {
    IS_OUTPUT_RESERVED.load(Ordering::Relaxed)
}

/// Returns the stream of progress.
fn stream() -> Box<dyn io::Write> {
    match is_output_reserved() {
        true => Box::new(io::stderr()),
        false => Box::new(io::stdout()),
    }
}

/// Begins a step. `scope` is its cluster: `local`, `remote` or empty.
pub(crate) fn begin(scope: &'static str, text: impl Display) -> Activity {
    static SPINNER: LazyLock<()> = LazyLock::new(|| {
        thread::spawn(spin);
    });
    let mut running = lock();
    let id = running.last().map_or(0, |last| last.id + 1);
    let since = Instant::now();
    if *TERMINAL {
        LazyLock::force(&SPINNER);
        let text = scoped(scope, text);
        running.push(Running { id, text, since });
    } else {
        write_line(&text);
    }
    Activity { id, scope, since }
}

/// Waits for `work`. If it takes longer than a moment, a step with this text is shown.
pub(crate) async fn show_if_slow<T>(text: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    match tokio::time::timeout(MOMENT, &mut work).await {
        Ok(result) => result,
        Err(_) => {
            let _activity = begin("", text);
            work.await
        }
    }
}

/// Prints an information.
pub(crate) fn info(text: impl Display) {
    line("INFO", false, text);
}

/// Prints a warning to standard error.
pub(crate) fn warn(text: impl Display) {
    line("WARN", true, text);
}

/// Ends all steps and removes the spinner from the terminal.
pub(crate) fn clear() {
    let mut running = lock();
    running.clear();
    erase();
}

impl Activity {
    /// Ends the step with success and prints a line.
    pub(crate) fn done(self, text: impl Display) {
        let (scope, since) = (self.scope, self.since);
        drop(self);
        if *TERMINAL {
            let taken = since.elapsed().as_secs_f64();
            line(
                "INFO",
                false,
                format_args!("{} ({taken:.1}s)", scoped(scope, text)),
            );
        } else {
            line("INFO", false, text);
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        lock().retain(|running| running.id != self.id);
    }
}

/// Returns the text with the cluster in front of it.
pub(crate) fn scoped(scope: &str, text: impl Display) -> String {
    if scope.is_empty() {
        text.to_string()
    } else {
        format!("({scope}) {text}")
    }
}

fn line(level: &str, is_error: bool, text: impl Display) {
    let _running = lock();
    erase();
    if is_error {
        // A closed stream has no reader.
        let _ = writeln!(io::stderr(), "{level}: {text}");
    } else {
        write_line(format_args!("{level}: {text}"));
    }
}

#[cfg(not(test))]
fn write_line(text: impl Display) {
    // A closed stream has no reader.
    let _ = writeln!(stream(), "{text}");
}

#[cfg(test)]
fn write_line(text: impl Display) {
    WRITTEN.with_borrow_mut(|lines| lines.push(text.to_string()));
}

#[cfg(test)]
std::thread_local! {
    static WRITTEN: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Returns the lines that this thread has written, and removes them.
#[cfg(test)]
pub(crate) fn take_lines() -> Vec<String> {
    WRITTEN.take()
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn erase() {
    if *TERMINAL {
        let mut stream = stream();
        let _ = write!(stream, "\r\x1b[K");
        let _ = stream.flush();
    }
}

fn spin() {
    for frame in FRAMES.iter().cycle() {
        {
            let running = lock();
            if let Some(text) = frame_text(*frame, &running) {
                let mut stream = stream();
                let _ = write!(stream, "\r\x1b[K{text}");
                let _ = stream.flush();
            }
        }
        thread::sleep(FRAME);
    }
}

/// Returns the line of the spinner: the oldest step and the number of the others.
fn frame_text(frame: char, running: &[Running]) -> Option<String> {
    let first = running.first()?;
    let others = match running.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let taken = first.since.elapsed().as_secs();
    Some(format!("{frame} {} ({taken}s){others}", first.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_slow_requests_are_shown() {
        show_if_slow("Reading", async {}).await;
        assert!(take_lines().is_empty());

        show_if_slow("Reading", tokio::time::sleep(MOMENT * 2)).await;
        assert_eq!(take_lines(), ["Reading"]);
    }

    #[test]
    fn the_spinner_shows_the_oldest_step() {
        let running = |id, text: &str| Running {
            id,
            text: text.to_owned(),
            since: Instant::now(),
        };

        assert_eq!(frame_text('|', &[]), None);
        assert_eq!(
            frame_text(
                '|',
                &[running(0, "(local) Waiting"), running(1, "Creating")]
            ),
            Some("| (local) Waiting (0s) and 1 more".to_owned())
        );
    }
}
