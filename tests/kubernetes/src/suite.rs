//! Runs tests that share clusters. Parallel tests run at the same time, and each serial test runs
//! alone.
//!
//! After each test, the runner runs the test's [cleanups](crate::cleanup), and waits until the
//! clusters are in their earlier state. After a failed serial test, the runner also restores the
//! shared clusters, so that later tests do not fail for the same reason.

mod leftovers;

use crate::cleanup;
use crate::cluster::{self, Cluster, Options};
use crate::diagnosis;
use crate::place::{self, Artifacts};
use crate::spec::Spec;
use anyhow::{Context as _, Result, anyhow, ensure};
use leftovers::Leftovers;
use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// The number of threads for parallel tests. Tests mostly wait, so the number may exceed the number
/// of CPUs.
const THREADS: usize = 4;

/// The duration from which on a test's duration is printed, to find the tests that make a run long.
const LONG: Duration = Duration::from_secs(10);

/// If this variable is set, the clusters are kept after the tests, and the next run uses them
/// again.
const KEEP: &str = "LIQO_LAB_KEEP";

/// If this variable is set, only the essential tests run.
const ESSENTIAL: &str = "LIQO_LAB_ESSENTIAL";

/// If this variable is set, only the named tests run. Commas separate the names.
const ONLY: &str = "LIQO_LAB_ONLY";

/// The environment variable with the path of a file. The runner appends a line "failed NAME" to
/// this file for each failed test.
const FAILURES: &str = "LIQO_LAB_FAILURES";

/// The function that runs a test on the shared clusters.
pub type Body<C> = fn(&'static C) -> Pin<Box<dyn Future<Output = Result<()>>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The test changes only objects that it creates.
    Parallel,
    /// The test may impair objects that other tests use.
    Serial,
}

/// The clusters that all tests of a program share.
pub trait Shared: Sized + Send + Sync + 'static {
    /// The names of the clusters. The prefix `it-` distinguishes them from clusters of users. Empty
    /// if the tests share a control plane without nodes.
    const NAMES: &'static [&'static str];

    /// Creates the clusters, or the missing parts of existing ones.
    ///
    /// # Errors
    ///
    /// Returns an error if a cluster does not become ready.
    fn make() -> Result<Self>;

    /// Restores the clusters after a failed serial test.
    ///
    /// # Errors
    ///
    /// Returns an error if a cluster cannot be restored.
    fn restore(&self) -> Result<()>;

    /// Writes the state of the clusters below `folder`, after the first failure of a test.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    fn diagnose(&self, folder: &Path) -> Result<()> {
        diagnose(Self::NAMES, folder)
    }

    /// Returns the time limit of each test, which ends a hanging test.
    fn limit() -> Duration {
        Duration::from_secs(20 * 60)
    }
}

/// The tests of a program, and the names of those that are essential.
pub struct Suite<C: Shared> {
    tests: Vec<Test<C>>,
    essential: &'static [&'static str],
    slow: &'static [&'static str],
}

struct Test<C: Shared> {
    name: String,
    mode: Mode,
    body: Body<C>,
}

/// The state that all tests of a run share.
struct Run<C: Shared> {
    shared: &'static C,
    clusters: Vec<Cluster>,
    /// Serial tests lock for writing, and parallel tests lock for reading.
    lock: RwLock<()>,
    leftovers: Mutex<Leftovers>,
}

/// Adds tests that run in parallel. Each test is given by the name of its function.
#[macro_export]
macro_rules! parallel {
    ($suite:expr, $($test:ident),+ $(,)?) => {
        $( $suite.parallel(module_path!(), stringify!($test), |shared| Box::pin($test(shared))); )+
    };
}

/// Adds tests that run alone. Each test is given by the name of its function.
#[macro_export]
macro_rules! serial {
    ($suite:expr, $($test:ident),+ $(,)?) => {
        $( $suite.serial(module_path!(), stringify!($test), |shared| Box::pin($test(shared))); )+
    };
}

impl<C: Shared> Default for Suite<C> {
    fn default() -> Self {
        Self {
            tests: Vec::new(),
            essential: &[],
            slow: &[],
        }
    }
}

impl<C: Shared> Suite<C> {
    /// Adds a test that changes only its own objects, and runs in parallel with other tests.
    pub fn parallel(&mut self, module: &str, name: &str, body: Body<C>) {
        self.add(module, name, Mode::Parallel, body);
    }

    /// Adds a test that may impair objects of other tests, and runs alone.
    pub fn serial(&mut self, module: &str, name: &str, body: Body<C>) {
        self.add(module, name, Mode::Serial, body);
    }

    /// Sets the essential tests, which every change must pass. `LIQO_LAB_ESSENTIAL` selects them.
    pub fn essential(&mut self, names: &'static [&'static str]) {
        self.essential = names;
    }

    /// Sets the tests that `LIQO_LAB_ESSENTIAL` leaves out of a suite without a list of essential tests.
    pub fn slow(&mut self, names: &'static [&'static str]) {
        self.slow = names;
    }

    /// Creates the clusters, runs the tests, and removes the clusters. `program` is the
    /// laboratory's program, which runs the nodes.
    pub fn run(mut self, program: &str, mut arguments: Arguments) -> ExitCode {
        if let Err(error) = place::use_program(program).and_then(|()| self.select()) {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
        // Parallel tests are first, so that all threads are in use.
        self.tests.sort_by_key(|test| test.mode == Mode::Serial);
        arguments.test_threads.get_or_insert(THREADS);
        if arguments.list || !self.selects_any(&arguments) {
            return libtest_mimic::run(&arguments, self.trials(None)).exit_code();
        }

        let code = match Run::start() {
            Ok(run) => libtest_mimic::run(&arguments, self.trials(Some(Arc::new(run)))).exit_code(),
            Err(error) => {
                eprintln!("error: the clusters did not come up: {error:#}");
                report(|folder| diagnose(C::NAMES, folder));
                ExitCode::FAILURE
            }
        };
        if C::NAMES.is_empty() {
            return code;
        }
        if env::var_os(KEEP).is_some() {
            let names = C::NAMES.join(" ");
            eprintln!("kept: `cargo xtask cluster down {names}` removes them");
            return code;
        }
        match remove(C::NAMES) {
            Ok(()) => code,
            Err(error) => {
                eprintln!("error: failed to remove the clusters: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn add(&mut self, module: &str, name: &str, mode: Mode, body: Body<C>) {
        let name = title(module, name);
        self.tests.push(Test { name, mode, body });
    }

    /// Removes the tests that the environment variables do not select.
    fn select(&mut self) -> Result<()> {
        let mut names = self.essential.iter().chain(self.slow);
        let unknown = names.find(|name| !self.tests.iter().any(|test| test.name == **name));
        ensure!(unknown.is_none(), "test {unknown:?} does not exist");

        if env::var_os(ESSENTIAL).is_some() {
            let (essential, slow) = (self.essential, self.slow);
            self.tests.retain(|test| {
                let name = test.name.as_str();
                (essential.is_empty() || essential.contains(&name)) && !slow.contains(&name)
            });
        }
        if let Ok(only) = env::var(ONLY) {
            let only: Vec<_> = only.split(',').collect();
            self.tests.retain(|test| only.contains(&test.name.as_str()));
        }

        Ok(())
    }

    /// Returns whether the arguments select a test. Otherwise no cluster is needed.
    fn selects_any(&self, arguments: &Arguments) -> bool {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        self.tests.iter().any(|test| test.name.contains(filter))
    }

    fn trials(self, run: Option<Arc<Run<C>>>) -> Vec<Trial> {
        let trial = |test: Test<C>| {
            let run = run.clone();
            Trial::test(test.name.clone(), move || {
                let run = run.ok_or("the clusters are missing")?;
                run.test(&test).map_err(|error| {
                    let error = match log_failure(&test.name) {
                        Ok(()) => error,
                        Err(other) => error.context(other),
                    };
                    Failed::from(format!("{error:#}"))
                })
            })
        };

        self.tests.into_iter().map(trial).collect()
    }
}

impl<C: Shared> Run<C> {
    fn start() -> Result<Self> {
        let shared = Box::leak(Box::new(C::make()?));
        let clusters = C::NAMES.iter().filter_map(|name| Cluster::find(name).ok());

        Ok(Self {
            shared,
            clusters: clusters.collect(),
            lock: RwLock::default(),
            leftovers: Mutex::default(),
        })
    }

    fn test(&self, test: &Test<C>) -> Result<()> {
        match test.mode {
            Mode::Parallel => {
                let _lock = self.lock.read().unwrap_or_else(PoisonError::into_inner);
                self.run_locked(test)
            }
            Mode::Serial => {
                let _lock = self.lock.write().unwrap_or_else(PoisonError::into_inner);
                self.run_locked(test)
            }
        }
    }

    fn run_locked(&self, test: &Test<C>) -> Result<()> {
        let mut leftovers = self.leftovers();
        block_on(leftovers.begin(&test.name, &self.clusters))?;
        drop(leftovers);

        let start = Instant::now();
        let body = (test.body)(self.shared);
        let mut outcome = block_on(cleanup::run(body, C::limit(), |error| {
            // libtest prints failures only at the end of all tests, which may be half an hour
            // later.
            eprintln!("failed: {error:#}");
            report(|folder| self.shared.diagnose(folder));
        }));
        if outcome.is_err() && test.mode == Mode::Serial {
            outcome = join_errors(outcome, self.shared.restore().context("failed to restore"));
        }
        let mut leftovers = self.leftovers();
        outcome = join_errors(outcome, block_on(leftovers.end(&self.clusters)));
        let taken = start.elapsed();
        if taken >= LONG {
            eprintln!("    {} took {} s", test.name, taken.as_secs());
        }

        outcome
    }

    fn leftovers(&self) -> std::sync::MutexGuard<'_, Leftovers> {
        self.leftovers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Combines two outcomes. The error contains the errors of both.
fn join_errors(first: Result<()>, second: Result<()>) -> Result<()> {
    match (first, second) {
        (Err(first), Err(second)) => Err(anyhow!("{first:#}; {second:#}")),
        (first, second) => first.and(second),
    }
}

/// Appends a line for a failed test to the file that [`FAILURES`] names, if any.
fn log_failure(name: &str) -> Result<()> {
    let Some(path) = env::var_os(FAILURES) else {
        return Ok(());
    };
    let context = || format!("failed to write {}", Path::new(&path).display());
    let mut options = File::options();
    let file = options.create(true).append(true).open(&path);
    // The line is written in a single call, since parallel tests append to the same file.
    let line = format!("failed {name}\n");

    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(context)
}

/// Runs a future on the current thread.
///
/// # Errors
///
/// Returns the future's error.
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start a runtime")?
        .block_on(future)
}

/// Creates clusters in parallel, or the missing parts of existing ones.
///
/// # Errors
///
/// Returns the error of the first failed cluster.
pub fn up(specs: Vec<Spec>) -> Result<Vec<Cluster>> {
    let start = Instant::now();
    let artifacts = artifacts()?;
    let count = specs.len();
    let threads: Vec<_> = specs
        .into_iter()
        .map(|spec| {
            let artifacts = artifacts.clone();
            thread::spawn(move || block_on(cluster::up(spec, &artifacts, &Options::default())))
        })
        .collect();
    // All threads must end, since a cluster that is still being created would survive the removal.
    let clusters: Vec<_> = threads
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a thread has panicked")))
        })
        .collect();
    let clusters = clusters.into_iter().collect::<Result<_>>()?;
    eprintln!(
        "{count} clusters are up ({:.1} s)",
        start.elapsed().as_secs_f64()
    );

    Ok(clusters)
}

/// Returns the programs that `cargo xtask test --kubernetes` has built for clusters.
///
/// # Errors
///
/// Returns an error if this command did not start the test program.
pub fn artifacts() -> Result<Artifacts> {
    env::var_os(place::ARTIFACTS_VARIABLE)
        .map(Artifacts::new)
        .with_context(|| {
            format!(
                "{} is not set: run `cargo xtask test --kubernetes`",
                place::ARTIFACTS_VARIABLE
            )
        })
}

/// Runs a program on the machine, and returns the standard output.
///
/// # Errors
///
/// Returns an error with the standard error if the program fails.
pub fn machine(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("failed to start {program}"))?;
    ensure!(
        output.status.success(),
        "`{program} {}` failed ({}): {}",
        args.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );

    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn remove(names: &[&str]) -> Result<()> {
    for name in names {
        if let Ok(cluster) = Cluster::find(name) {
            cluster.down()?;
        }
    }
    cluster::clear_machine()
}

/// Writes the state of the clusters to files at the first call, and prints the folder.
fn report(diagnose: impl FnOnce(&Path) -> Result<()>) {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        let folder = target().join("kubernetes");
        match diagnose(&folder) {
            Ok(()) => eprintln!("the state of all clusters is in {}", folder.display()),
            Err(error) => eprintln!("no diagnosis: {error:#}"),
        }
    });
}

fn diagnose(names: &[&str], folder: &Path) -> Result<()> {
    let clusters: Vec<_> = names
        .iter()
        .filter_map(|name| Cluster::find(name).ok())
        .collect();
    diagnosis::gather(&clusters, folder)
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    )
}

fn title(module: &str, name: &str) -> String {
    let module = module
        .split_once("::")
        .map_or(module, |(_crate, rest)| rest);
    format!("{module}::{name}")
}

#[cfg(test)]
mod tests;
