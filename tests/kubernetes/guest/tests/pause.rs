//! The process as it is started: in its place after a shell.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Far more than it takes on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn it_ends_well_when_asked_to() {
    for signal in ["TERM", "INT"] {
        let mut pause = Owned(Command::new(PAUSE).spawn().unwrap());
        until("it waits", || waits(&pause));

        pause.signal(signal);

        let status = pause.0.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{signal}: {:?}", status.signal());
    }
}

#[test]
fn a_child_that_it_did_not_start_is_buried() {
    let (pause, stdin) = with_child();
    until("it waits", || waits(&pause));
    assert_eq!(
        children(&pause).len(),
        1,
        "the shell's child is its own now"
    );

    // `cat` ends with its input.
    drop(stdin);

    until("no child is left, not even a dead one", || {
        children(&pause).is_empty()
    });
}

#[test]
fn other_signals_do_not_end_it() {
    let pause = Owned(Command::new(PAUSE).spawn().unwrap());
    until("it waits", || waits(&pause));

    pause.signal("CHLD");

    until("it has taken the signal and waits again", || waits(&pause));
}

const PAUSE: &str = env!("CARGO_BIN_EXE_pause");

/// Starts a shell that starts `cat` and becomes `pause`.
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

/// Is itself, not the shell any more, has no signal left to take, and sleeps.
fn waits(pause: &Owned) -> bool {
    let has_taken_all = status(pause, "ShdPnd:").bytes().all(|digit| digit == b'0');

    status(pause, "Name:") == "pause" && has_taken_all && status(pause, "State:").starts_with('S')
}

/// A field of `/proc/<pid>/status`.
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
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::yield_now();
    }
}
