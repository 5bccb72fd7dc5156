//! Network namespaces for tests. Each namespace exists as long as its thread.

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time-out for conditions. On an idle machine, conditions hold after a fraction of a second.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `test` on a new thread in a new network namespace, in which `lo` is up.
///
/// The kernel deletes the namespace with its last thread, so no clean-up is needed. The test needs
/// root.
#[track_caller]
pub(crate) fn in_netns<F>(test: F)
where
    F: AsyncFnOnce() + Send + 'static,
{
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("creating a network namespace needs root");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the runtime needs no thread");

        runtime.block_on(async {
            run("ip link set lo up");
            test().await;
        });
    };

    thread::spawn(run)
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Runs a command line in this thread's network namespace, and returns the standard output.
#[track_caller]
pub(crate) fn run(line: &str) -> String {
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(
        output.status.success(),
        "`{line}`: {}",
        String::from_utf8_lossy(&output.stderr)
    );

    String::from_utf8(output.stdout).unwrap()
}

/// Waits until `condition` returns `true`.
///
/// # Panics
///
/// Panics if `condition` does not return `true` within [`DEADLINE`].
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition().await {
        assert!(Instant::now() < deadline, "timed out: never {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A second network namespace, in which a thread runs commands.
pub(crate) struct Namespace {
    jobs: mpsc::Sender<Job>,
    tid: Pid,
}

type Job = Box<dyn FnOnce() + Send>;

impl Namespace {
    pub(crate) fn new() -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (tid_out, tid_in) = mpsc::channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("creating a network namespace needs root");
            tid_out.send(gettid()).unwrap();
            for job in inbox {
                job();
            }
        });
        let namespace = Self {
            jobs,
            tid: tid_in.recv().unwrap(),
        };
        namespace.run("ip link set lo up");

        namespace
    }

    /// Runs `job` on the thread in the namespace, and returns the result.
    pub(crate) fn with<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (out, result) = mpsc::channel();
        let job = Box::new(move || out.send(job()).unwrap());
        self.jobs.send(job).unwrap();

        result.recv().expect("the job panicked")
    }

    /// Runs a command line in the namespace, and returns the standard output.
    pub(crate) fn run(&self, line: &str) -> String {
        let line = line.to_owned();
        self.with(move || run(&line))
    }

    /// Connects this namespace to the test's namespace by a veth pair. The device is `here` in the
    /// test's namespace, and `eth0` in this namespace.
    pub(crate) fn connect(&self, here: &str) {
        let tid = self.tid;
        run(&format!(
            "ip link add {here} type veth peer name eth0 netns {tid}; ip link set {here} up"
        ));
        self.run("ip link set eth0 up");
    }
}
