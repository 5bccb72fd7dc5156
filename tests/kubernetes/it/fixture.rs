//! The clusters that all tests share, and how a test is run.

use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::{self, Cluster, Options};
use kubernetes_lab::diagnosis;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::place::{self, Artifacts};
use kubernetes_lab::spec::Spec;
use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Instant;

/// How many tests run at once: most of the time they wait.
const THREADS: usize = 4;

/// Two clusters with the same networks.
#[derive(Debug)]
pub(crate) struct Clusters {
    pub(crate) rome: Cluster,
    pub(crate) milan: Cluster,
}

impl Clusters {
    /// A namespace in the first of them.
    pub(crate) async fn namespace(&self, name: &str) -> Result<Namespace> {
        Namespace::create(&self.rome, name).await
    }
}

type Body = fn(&'static Clusters) -> Pin<Box<dyn Future<Output = Result<()>>>>;

/// How a test gets on with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It changes only what is its own.
    Calm,
    /// It breaks what others use.
    Rough,
}

/// All tests.
#[derive(Default)]
pub(crate) struct Suite {
    tests: Vec<(String, Manner, Body)>,
}

/// Adds tests, by the names of their functions.
macro_rules! calm {
    ($suite:expr, $($test:ident),+ $(,)?) => {
        $( $suite.calm(module_path!(), stringify!($test), |clusters| Box::pin($test(clusters))); )+
    };
}

/// Adds tests that break what others use.
macro_rules! rough {
    ($suite:expr, $($test:ident),+ $(,)?) => {
        $( $suite.rough(module_path!(), stringify!($test), |clusters| Box::pin($test(clusters))); )+
    };
}

pub(crate) use {calm, rough};

static CLUSTERS: OnceLock<Clusters> = OnceLock::new();

/// Held alone by a rough test.
static PEACE: RwLock<()> = RwLock::new(());

impl Suite {
    /// Adds a test that runs beside others.
    pub(crate) fn calm(&mut self, module: &str, name: &str, body: Body) {
        self.tests.push((title(module, name), Manner::Calm, body));
    }

    /// Adds a test that runs alone.
    pub(crate) fn rough(&mut self, module: &str, name: &str, body: Body) {
        self.tests.push((title(module, name), Manner::Rough, body));
    }

    /// Makes the clusters, runs the tests, and removes the clusters.
    pub(crate) fn run(mut self, mut arguments: Arguments) -> ExitCode {
        place::use_program(env!("CARGO_BIN_EXE_cluster"));
        // The rough ones last: the calm ones are many at once.
        self.tests
            .sort_by_key(|(.., manner, _)| *manner == Manner::Rough);
        let trials = |tests: Vec<(String, Manner, Body)>| -> Vec<Trial> {
            let trial = |(name, manner, body)| Trial::test(name, move || test(manner, body));
            tests.into_iter().map(trial).collect()
        };
        arguments.test_threads.get_or_insert(THREADS);
        if arguments.list {
            return libtest_mimic::run(&arguments, trials(self.tests)).exit_code();
        }

        let begun = make();
        let code = match begun {
            Ok(clusters) => {
                let _ = CLUSTERS.set(clusters);
                libtest_mimic::run(&arguments, trials(self.tests)).exit_code()
            }
            Err(error) => {
                eprintln!("error: the clusters do not come up: {error:#}");
                report();
                ExitCode::FAILURE
            }
        };
        if env::var_os(KEEP).is_some() {
            eprintln!("kept: `cargo xtask cluster down {ROME} {MILAN}` removes them");
            return code;
        }
        match remove() {
            Ok(()) => code,
            Err(error) => {
                eprintln!("error: the clusters do not go: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Set to keep the clusters after the tests, and to find them before the next.
const KEEP: &str = "LIQO_LAB_KEEP";

fn test(manner: Manner, body: Body) -> Result<(), Failed> {
    let clusters = CLUSTERS.get().ok_or("there are no clusters")?;
    let outcome = match manner {
        Manner::Calm => {
            let _peace = PEACE.read().unwrap_or_else(PoisonError::into_inner);
            block_on(body(clusters))
        }
        Manner::Rough => {
            let _peace = PEACE.write().unwrap_or_else(PoisonError::into_inner);
            block_on(body(clusters))
        }
    };

    outcome.map_err(|error| {
        report();
        format!("{error:#}").into()
    })
}

/// Runs a future on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start a runtime")?
        .block_on(future)
}

fn make() -> Result<Clusters> {
    let start = Instant::now();
    let artifacts = artifacts()?;
    let up = |name: &'static str| {
        let artifacts = artifacts.clone();
        std::thread::spawn(move || {
            block_on(cluster::up(
                Spec::new(name),
                &artifacts,
                &Options::default(),
            ))
        })
    };
    let [rome, milan] = [up(ROME), up(MILAN)].map(|thread| {
        thread
            .join()
            .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread has panicked")))
    });
    eprintln!(
        "two clusters are up ({:.1} s)",
        start.elapsed().as_secs_f64()
    );

    Ok(Clusters {
        rome: rome?,
        milan: milan?,
    })
}

fn remove() -> Result<()> {
    for name in [ROME, MILAN] {
        if let Ok(cluster) = Cluster::find(name) {
            cluster.down()?;
        }
    }
    cluster::clear_machine()
}

/// Writes what is to be known of the clusters, once, and says where.
fn report() {
    static REPORTED: OnceLock<()> = OnceLock::new();
    if REPORTED.set(()).is_err() {
        return;
    }
    let folder = target().join("kubernetes");
    let clusters: Vec<_> = [ROME, MILAN]
        .iter()
        .filter_map(|name| Cluster::find(name).ok())
        .collect();
    match diagnosis::gather(&clusters, &folder) {
        Ok(()) => eprintln!("the state of all clusters is in {}", folder.display()),
        Err(error) => eprintln!("no diagnosis: {error:#}"),
    }
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    )
}

/// What `cargo xtask test --kubernetes` has built.
pub(crate) fn artifacts() -> Result<Artifacts> {
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
pub(crate) fn machine(program: &str, args: &[&str]) -> Result<String> {
    let output = std::process::Command::new(program)
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

/// A call of the laboratory's command.
pub(crate) fn command() -> std::process::Command {
    std::process::Command::new(env!("CARGO_BIN_EXE_cluster"))
}

fn title(module: &str, name: &str) -> String {
    let module = module
        .split_once("::")
        .map_or(module, |(_crate, rest)| rest);
    format!("{module}::{name}")
}
