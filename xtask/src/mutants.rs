//! `cargo xtask test --mutants`: disables one mechanism at a time, for example the replay window,
//! and checks that the mechanism's test then fails. A test that passes with and without a mechanism
//! proves nothing.

mod table;

use crate::shell::Shell;
use crate::test::BINARIES;
use crate::{console, workspace};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use table::{MUTANTS, Mutant, Suite};

/// The environment variable that names the mechanism to disable in a mutant build.
const SWITCH: &str = "LIQO_MUTANT";

/// Whether a test detects that its mechanism is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The test passes with the mechanism, and fails without the mechanism.
    Caught,
    /// The test passes with and without the mechanism.
    Survived,
    /// The test fails with the mechanism, so a failure without the mechanism proves nothing.
    Invalid,
}

/// Builds the mutants, and runs the test of each mutant.
///
/// # Errors
///
/// Returns an error if a test passes without its mechanism, or fails with its mechanism.
pub(crate) fn run(shell: &mut Shell, filter: Option<&str>) -> Result<()> {
    let chosen: Vec<_> = MUTANTS
        .iter()
        .filter(|mutant| filter.is_none_or(|part| mutant.name.contains(part)))
        .collect();
    if chosen.is_empty() {
        bail!("no mutant has {:?} in its name", filter.unwrap_or_default());
    }
    let suites: BTreeSet<_> = chosen.iter().map(|mutant| mutant.suite).collect();
    let build = Build::new(shell, suites)?;

    console::step("The tests without a mutant, which must pass");
    let mut controls = BTreeMap::new();
    for mutant in &chosen {
        if !controls.contains_key(mutant.test) {
            controls.insert(mutant.test, build.passes(shell, mutant, None)?);
        }
    }
    console::step("The tests with one mechanism disabled, which must fail");
    let mut verdicts = Vec::new();
    for mutant in chosen {
        let control = controls[mutant.test];
        // If the test has failed without the mutant, a second run would prove nothing.
        let passes = control && build.passes(shell, mutant, Some(mutant.name))?;
        verdicts.push((mutant, judge(control, passes)));
    }

    print(&verdicts);
    let missed = verdicts
        .iter()
        .filter(|(_, verdict)| *verdict != Verdict::Caught)
        .count();
    if missed > 0 {
        bail!("{missed} of {} mutants were not caught", verdicts.len());
    }
    Ok(())
}

fn judge(passes_without: bool, passes_with: bool) -> Verdict {
    match (passes_without, passes_with) {
        (true, false) => Verdict::Caught,
        (true, true) => Verdict::Survived,
        (false, _) => Verdict::Invalid,
    }
}

fn print(verdicts: &[(&Mutant, Verdict)]) {
    anstream::println!("{:<18} {:<10} test", "mutant", "verdict");
    for (mutant, verdict) in verdicts {
        let (style, word) = match verdict {
            Verdict::Caught => (console::GOOD, "caught"),
            Verdict::Survived => (console::BAD, "SURVIVED"),
            Verdict::Invalid => (console::BAD, "INVALID"),
        };
        anstream::println!(
            "{:<18} {style}{word:<10}{style:#} {}",
            mutant.name,
            mutant.test
        );
    }
}

/// The test binaries, and the folder of the mutant gateway and route agent.
#[derive(Debug)]
struct Build {
    tests: BTreeMap<Suite, PathBuf>,
    binaries: PathBuf,
}

impl Build {
    fn new(shell: &mut Shell, suites: BTreeSet<Suite>) -> Result<Self> {
        let start = Instant::now();
        console::step("Building gateway and route agent with mechanisms that can be disabled");
        // A separate target folder ensures that a mutant binary is never released.
        let target = workspace::target().join("mutants");
        if suites.contains(&Suite::Laboratory) {
            let mut build = workspace::cargo(&["build", "--release", "--locked"]);
            build
                .args(["--package", "gateway", "--package", "route-agent"])
                .args(["--features", "gateway/mutants,route-agent/mutants"])
                .arg("--target-dir")
                .arg(&target);
            shell.run(build)?;
        }
        let tests = suites
            .into_iter()
            .map(|suite| Ok((suite, suite.build(shell)?)))
            .collect::<Result<_>>()?;
        console::done("built", start.elapsed());

        Ok(Self {
            tests,
            binaries: target.join("release"),
        })
    }

    fn passes(&self, shell: &mut Shell, mutant: &Mutant, switch: Option<&str>) -> Result<bool> {
        let start = Instant::now();
        let test = mutant.test;
        let mut command = Command::new(&self.tests[&mutant.suite]);
        command
            .args(["--exact", test])
            .current_dir(workspace::root().join(mutant.suite.folder()))
            .env(BINARIES, &self.binaries)
            .env_remove(SWITCH);
        if let Some(name) = switch {
            command.env(SWITCH, name);
        }
        let output = shell.output(command)?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !text.contains("running 1 test\n") {
            bail!("there is no test {test}");
        }

        let passes = output.status.success();
        let verb = if passes { "passes" } else { "fails" };
        let without = switch.map_or(String::new(), |name| format!(" without {name}"));
        console::done(format_args!("{test} {verb}{without}"), start.elapsed());
        Ok(passes)
    }
}

impl Suite {
    /// Builds the tests, and returns the path of the test binary.
    fn build(self, shell: &mut Shell) -> Result<PathBuf> {
        let mut build = workspace::cargo(&["test", "--locked", "--no-run"]);
        build.args(["--message-format", "json"]);
        build.args(match self {
            Self::Laboratory => ["--package", "tests", "--test", "laboratory"].as_slice(),
            Self::Kernel => &["--package", "ebpf", "--lib", "--features", "mutants"],
            Self::Gateway => &["--package", "gateway", "--features", "mutants"],
        });
        let output = shell.output(build)?;
        if !output.status.success() {
            bail!(
                "failed to build tests: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }

        executable(&String::from_utf8_lossy(&output.stdout))
            .with_context(|| format!("cargo reported no test binary in {}", self.folder()))
    }

    /// Returns the folder of the crate, which is the working directory of its tests.
    fn folder(self) -> &'static str {
        match self {
            Self::Laboratory => "tests",
            Self::Kernel => "ebpf",
            Self::Gateway => "gateway",
        }
    }
}

fn executable(messages: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }

    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok()?.executable)
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_caught_if_its_test_fails_only_with_it() {
        assert_eq!(judge(true, false), Verdict::Caught);
        assert_eq!(judge(true, true), Verdict::Survived);
        assert_eq!(judge(false, false), Verdict::Invalid);
        assert_eq!(judge(false, true), Verdict::Invalid);
    }

    #[test]
    fn the_binary_is_read_from_cargo_s_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","executable":"/target/debug/deps/it-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );

        assert_eq!(
            executable(messages),
            Some(PathBuf::from("/target/debug/deps/it-1"))
        );
    }
}
