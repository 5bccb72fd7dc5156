//! Tests of `pause`, which a shell starts by `exec`.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The time-out of waits, which suffices on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn it_exits_successfully_at_sigterm() {
    for signal in ["TERM", "INT"] {
        let mut pause = Owned(Command::new(PAUSE).spawn().unwrap());
        until("it waits", || waits(&pause));

        pause.signal(signal);

        let status = pause.0.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{signal}: {:?}", status.signal());
    }
}

#[test]
fn an_adopted_child_is_reaped() {
    let (pause, stdin) = with_child();
    until("it waits", || waits(&pause));
    assert_eq!(
        children(&pause).len(),
        1,
        "the child of the shell is adopted"
    );

    // `cat` ends when its input is closed.
    drop(stdin);

    until("no child is left, not even a zombie", || {
        children(&pause).is_empty()
    });
}

#[test]
fn other_signals_do_not_end_it() {
    let pause = Owned(Command::new(PAUSE).spawn().unwrap());
    until("it waits", || waits(&pause));

    pause.signal("CHLD");

    until("the signal is handled and it waits again", || waits(&pause));
}

const PAUSE: &str = env!("CARGO_BIN_EXE_pause");

/// Starts a shell that starts `cat` and replaces itself by `pause`.
fn with_child() -> (Owned, ChildStdin) {
    let mut child = Command::new("sh")
        .args(["-c", "exec 3<&0; cat <&3 & exec 3<&-; exec \"$0\"", PAUSE])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a shell");
    let stdin = child.stdin.take().expect("it is piped");

    (Owned(child), stdin)
}

struct Owned(Child);

impl Owned {
    fn signal(&self, name: &str) {
        let kill = Command::new("kill")
            .args([format!("-{name}"), self.0.id().to_string()])
            .status();
        assert!(kill.expect("`kill` is in PATH").success());
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether the process is `pause`, has no pending signal, and sleeps.
fn waits(pause: &Owned) -> bool {
    let no_pending = status(pause, "ShdPnd:").bytes().all(|digit| digit == b'0');

    status(pause, "Name:") == "pause" && no_pending && status(pause, "State:").starts_with('S')
}

/// Returns a field of `/proc/PID/status`.
fn status(pause: &Owned, field: &str) -> String {
    let path = format!("/proc/{}/status", pause.0.id());
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));

    line.unwrap_or_default().trim().to_owned()
}

fn children(pause: &Owned) -> Vec<String> {
    let pid = pause.0.id();
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.expect("the process runs");

    text.split_whitespace().map(str::to_owned).collect()
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        thread::yield_now();
    }
}
