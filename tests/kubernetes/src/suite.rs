//! Tests that share clusters: the calm ones run beside each other, the rough ones alone.

use crate::cluster::{self, Cluster, Options};
use crate::diagnosis;
use crate::place::{self, Artifacts};
use crate::spec::Spec;
use anyhow::{Context as _, Result, anyhow, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::fs::File;
use std::future::Future;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Once, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

/// How many tests run at once: most of the time they wait.
const THREADS: usize = 4;

/// Set to keep the clusters after the tests, and to find them before the next.
const KEEP: &str = "LIQO_LAB_KEEP";

/// Set to run only the essential tests.
const ESSENTIAL: &str = "LIQO_LAB_ESSENTIAL";

/// Set to run only the tests of these names, which commas divide.
const ONLY: &str = "LIQO_LAB_ONLY";

/// Set to the file that gets a line "failed NAME" for each test that fails.
const FAILURES: &str = "LIQO_LAB_FAILURES";

/// A test, given what all share.
pub type Body<C> = fn(&'static C) -> Pin<Box<dyn Future<Output = Result<()>>>>;

/// How a test gets on with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It changes only what is its own.
    Calm,
    /// It breaks what others use.
    Rough,
}

/// What the tests of a program share.
pub trait Shared: Sized + Send + Sync + 'static {
    /// The names of the clusters, which begin with `it-`: people's do not.
    const NAMES: &'static [&'static str];

    /// Makes it; what is there already is used.
    ///
    /// # Errors
    ///
    /// Returns an error if something does not come up.
    fn make() -> Result<Self>;
}

/// All tests of a program.
pub struct Suite<C: Shared> {
    tests: Vec<(String, Manner, Body<C>)>,
    essential: &'static [&'static str],
}

/// Adds tests, by the names of their functions.
#[macro_export]
macro_rules! calm {
    ($suite:expr, $($test:ident),+ $(,)?) => {
        $( $suite.calm(module_path!(), stringify!($test), |shared| Box::pin($test(shared))); )+
    };
}

/// Adds tests that break what others use.
#[macro_export]
macro_rules! rough {
    ($suite:expr, $($test:ident),+ $(,)?) => {
        $( $suite.rough(module_path!(), stringify!($test), |shared| Box::pin($test(shared))); )+
    };
}

impl<C: Shared> Default for Suite<C> {
    fn default() -> Self {
        Self {
            tests: Vec::new(),
            essential: &[],
        }
    }
}

impl<C: Shared> Suite<C> {
    /// Adds a test that runs beside others.
    pub fn calm(&mut self, module: &str, name: &str, body: Body<C>) {
        self.tests.push((title(module, name), Manner::Calm, body));
    }

    /// Adds a test that runs alone.
    pub fn rough(&mut self, module: &str, name: &str, body: Body<C>) {
        self.tests.push((title(module, name), Manner::Rough, body));
    }

    /// Names the tests that every change must pass; `LIQO_LAB_ESSENTIAL` runs no others.
    pub fn essential(&mut self, names: &'static [&'static str]) {
        self.essential = names;
    }

    /// Makes the clusters, runs the tests with the laboratory's `program`, and removes
    /// the clusters.
    pub fn run(mut self, program: &str, mut arguments: Arguments) -> ExitCode {
        place::use_program(program);
        if let Some(unknown) = self.unknown() {
            eprintln!("error: there is no essential test {unknown}");
            return ExitCode::FAILURE;
        }
        if env::var_os(ESSENTIAL).is_some() {
            let essential = self.essential;
            self.tests
                .retain(|(name, ..)| essential.contains(&name.as_str()));
        }
        if let Ok(only) = env::var(ONLY) {
            let only: Vec<_> = only.split(',').collect();
            self.tests
                .retain(|(name, ..)| only.contains(&name.as_str()));
        }
        // The rough ones last: the calm ones are many at once.
        self.tests
            .sort_by_key(|(.., manner, _)| *manner == Manner::Rough);
        arguments.test_threads.get_or_insert(THREADS);
        if arguments.list {
            return libtest_mimic::run(&arguments, self.trials(None)).exit_code();
        }

        let code = match C::make() {
            Ok(shared) => {
                let shared: &'static C = Box::leak(Box::new(shared));
                libtest_mimic::run(&arguments, self.trials(Some(shared))).exit_code()
            }
            Err(error) => {
                eprintln!("error: the clusters do not come up: {error:#}");
                report(C::NAMES);
                ExitCode::FAILURE
            }
        };
        if env::var_os(KEEP).is_some() {
            let names = C::NAMES.join(" ");
            eprintln!("kept: `cargo xtask cluster down {names}` removes them");
            return code;
        }
        match remove(C::NAMES) {
            Ok(()) => code,
            Err(error) => {
                eprintln!("error: the clusters do not go: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    /// An essential test that does not exist.
    fn unknown(&self) -> Option<&'static str> {
        let exists = |wanted: &str| self.tests.iter().any(|(name, ..)| name == wanted);

        self.essential.iter().copied().find(|name| !exists(name))
    }

    fn trials(self, shared: Option<&'static C>) -> Vec<Trial> {
        // Held alone by a rough test.
        let peace = Arc::new(RwLock::new(()));
        let trial = |(name, manner, body): (String, Manner, Body<C>)| {
            let peace = Arc::clone(&peace);
            Trial::test(name.clone(), move || {
                let shared = shared.ok_or("there are no clusters")?;
                let outcome = test(shared, manner, body, &peace);
                if outcome.is_err() {
                    log_failure(&name)?;
                }
                outcome
            })
        };

        self.tests.into_iter().map(trial).collect()
    }
}

fn test<C: Shared>(
    shared: &'static C,
    manner: Manner,
    body: Body<C>,
    peace: &RwLock<()>,
) -> Result<(), Failed> {
    let outcome = match manner {
        Manner::Calm => {
            let _peace = peace.read().unwrap_or_else(PoisonError::into_inner);
            block_on(body(shared))
        }
        Manner::Rough => {
            let _peace = peace.write().unwrap_or_else(PoisonError::into_inner);
            block_on(body(shared))
        }
    };

    outcome.map_err(|error| {
        // All failures are printed again at the end, which may be half an hour away.
        eprintln!("failed: {error:#}");
        report(C::NAMES);
        format!("{error:#}").into()
    })
}

/// Adds a test to the file of those that failed, if one is wanted.
fn log_failure(name: &str) -> Result<()> {
    let Some(path) = env::var_os(FAILURES) else {
        return Ok(());
    };
    let context = || format!("failed to write {}", Path::new(&path).display());
    let mut options = File::options();
    let file = options.create(true).append(true).open(&path);
    // One call for a line: others may write theirs at this moment.
    let line = format!("failed {name}\n");

    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(context)
}

/// Runs a future on this thread.
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

/// Makes clusters at once, or completes those that are there.
///
/// # Errors
///
/// Returns the first error of any.
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
    // All are waited for: one that is being made while others are removed would be left.
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

/// What `cargo xtask test --kubernetes` has built for clusters.
///
/// # Errors
///
/// Returns an error if it was not run.
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

/// Runs a program of the machine, and returns what it printed.
///
/// # Errors
///
/// Returns an error with what it said if it fails.
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

/// Writes what is to be known of the clusters, once, and says where.
fn report(names: &[&str]) {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        let folder = target().join("kubernetes");
        let clusters: Vec<_> = names
            .iter()
            .filter_map(|name| Cluster::find(name).ok())
            .collect();
        match diagnosis::gather(&clusters, &folder) {
            Ok(()) => eprintln!("the state of all clusters is in {}", folder.display()),
            Err(error) => eprintln!("no diagnosis: {error:#}"),
        }
    });
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
