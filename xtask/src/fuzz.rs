//! `cargo xtask fuzz`: runs coverage-guided fuzzing against all code that handles input of peers,
//! pods, users and unauthenticated senders.

use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{console, setup, workspace};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Fuzz {
    /// The target to run; all targets if none is given.
    #[arg(value_parser = TARGETS.map(|target| target.name), conflicts_with = "list")]
    target: Option<String>,

    /// The duration of each target's run, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,

    /// Lists the targets, and ends.
    #[arg(long)]
    list: bool,

    /// Runs one input from a file, for example the input of a crash, instead of random inputs.
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask fuzz                       all targets, a minute each
  cargo xtask fuzz engine --seconds 600  one target for ten minutes
  cargo xtask fuzz --list                what each target fuzzes
  cargo xtask fuzz kernel --input fuzz/artifacts/kernel/crash-1234
                                         one input again, with the backtrace of its crash

Seeds are in fuzz/corpus. Inputs that reach new code are kept in target/fuzz/corpus, so that the next
run starts from them. The input of a crash is kept in fuzz/artifacts.";

struct Target {
    name: &'static str,
    /// The input that the target generates, and the code that handles it.
    about: &'static str,
    /// Maximum length of an input, in bytes.
    len_max: u32,
}

/// All targets. Their names are the names in `fuzz/Cargo.toml`.
const TARGETS: [Target; 7] = [
    Target {
        name: "engine",
        about: "sequences of datagrams, and time, into the gateway's engine",
        len_max: 4_096,
    },
    Target {
        name: "frames",
        about: "frames from the TAP and packets from peers, through split and coalesce",
        len_max: 16_384,
    },
    Target {
        name: "probes",
        about: "probes of the tunnel and of the overlay, through both parsers",
        len_max: 2_048,
    },
    Target {
        name: "fabric",
        about: "fabric files and objects, through parser, planner and resolver",
        len_max: 8_192,
    },
    Target {
        name: "requests",
        about: "requests to the proxy of the API server, in pieces, through the parser",
        len_max: 10_240,
    },
    Target {
        name: "samples",
        about: "metrics of a kubelet, in pieces, through the filter of a consumer's pods",
        len_max: 20_480,
    },
    Target {
        name: "kernel",
        about: "packets through the kernel programs, compared with the oracle; needs root",
        len_max: 512,
    },
];

/// Time limit for one input, in seconds. The limit is a hundred times the duration of the slowest
/// known input.
const INPUT_SECONDS_MAX: u32 = 20;

/// Maximum number of lines to print from the end of a failed target's output.
const LINES_MAX: usize = 60;

/// Builds the targets, and runs them one after the other.
///
/// # Errors
///
/// Returns an error that names the failed targets, and prints how to run the failing inputs again.
pub(crate) fn run(shell: &mut Shell, options: &Fuzz) -> Result<()> {
    if options.list {
        for target in &TARGETS {
            anstream::println!("{:<8} {}", target.name, target.about);
        }
        return Ok(());
    }
    let chosen = TARGETS.iter().filter(|target| {
        options
            .target
            .as_ref()
            .is_none_or(|name| name == target.name)
    });
    setup::run_for(shell, &[Set::Fuzz])?;
    let fuzzer = Fuzzer::build(shell, options.target.as_deref())?;
    if let (Some(input), Some(name)) = (&options.input, &options.target) {
        return fuzzer.repeat(shell, name, input);
    }

    let start = Instant::now();
    console::step(format_args!(
        "Fuzzing, {} s for each target",
        options.seconds
    ));
    let mut outcomes = Vec::new();
    for target in chosen {
        outcomes.push((target.name, fuzzer.fuzz(shell, target, options.seconds)?));
    }

    conclude(&outcomes, start.elapsed())
}

/// cargo-fuzz, after it has built the targets. [`Fuzzer::build`] is the only constructor.
struct Fuzzer {
    program: PathBuf,
}

impl Fuzzer {
    fn build(shell: &mut Shell, target: Option<&str>) -> Result<Self> {
        let fuzzer = Self {
            program: setup::fuzzer::program(shell)?,
        };
        let start = Instant::now();
        console::step("Building the fuzz targets, with the address sanitizer");
        let mut build = fuzzer.command("build");
        build.args(target);
        shell.run(build)?;
        console::done("built", start.elapsed());

        Ok(fuzzer)
    }

    /// Returns a call of cargo-fuzz. The sanitizer needs compiler flags that a stable compiler
    /// accepts only with `RUSTC_BOOTSTRAP`. Without `--release`, cargo-fuzz would enable debug
    /// assertions in all packages. With this flag, the release profile in `fuzz/Cargo.toml` enables
    /// them in all packages except curve25519-dalek.
    fn command(&self, action: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(action)
            .args(["--release", "--sanitizer", "address", "--fuzz-dir"])
            .arg(workspace::root().join("fuzz"))
            .arg("--target-dir")
            .arg(target_dir())
            .current_dir(workspace::root())
            .env("RUSTC_BOOTSTRAP", "1");
        command
    }

    /// Runs a target on random inputs. Returns the number of inputs, or `None` if an input failed.
    fn fuzz(&self, shell: &mut Shell, target: &Target, seconds: u64) -> Result<Option<u64>> {
        let start = Instant::now();
        let kept = target_dir().join("corpus").join(target.name);
        fs::create_dir_all(&kept)
            .with_context(|| format!("failed to create {}", kept.display()))?;
        let seeds = workspace::root().join("fuzz/corpus").join(target.name);
        let mut command = self.command("run");
        command
            .arg(target.name)
            .args([&kept, &seeds])
            .args(["--", "-print_final_stats=1", "-close_fd_mask=1"])
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={}", target.len_max))
            .arg(format!("-timeout={INPUT_SECONDS_MAX}"));
        let dictionary = dictionary(target.name);
        if dictionary.is_file() {
            command.arg(format!("-dict={}", dictionary.display()));
        }

        let output = shell.output(command)?;
        let inputs = inputs(&String::from_utf8_lossy(&output.stderr));
        if output.status.success()
            && let Some(inputs) = inputs
        {
            console::done(
                format_args!("{}: {inputs} inputs", target.name),
                start.elapsed(),
            );
            return Ok(Some(inputs));
        }
        console::failed(target.name, start.elapsed());
        explain(target.name, &output);
        Ok(None)
    }

    /// Runs a target on one input. The output of the target goes to the terminal.
    fn repeat(&self, shell: &mut Shell, target: &str, input: &Path) -> Result<()> {
        let input = fs::canonicalize(input)
            .with_context(|| format!("failed to find {}", input.display()))?;
        let mut command = self.command("run");
        command.arg(target).arg(input).env("RUST_BACKTRACE", "1");

        shell.run(command)
    }
}

fn target_dir() -> PathBuf {
    workspace::target().join("fuzz")
}

fn dictionary(target: &str) -> PathBuf {
    workspace::root().join(format!("fuzz/dictionaries/{target}.dict"))
}

/// Returns the number of inputs that libFuzzer reports in its final statistics.
fn inputs(stats: &str) -> Option<u64> {
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;

    line.trim().parse().ok()
}

/// Prints the end of a failed target's output, its panic, the failing input in Base64, and the
/// command that runs this input again.
fn explain(target: &str, output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(LINES_MAX)..] {
        console::note(line);
    }
    for line in cause(&lines) {
        console::note(line);
    }
    let input = text.lines().find_map(|line| {
        line.split_once("Test unit written to ")
            .map(|(_, path)| path)
    });
    if let Some(input) = input {
        let input = Path::new(input);
        let input = input.strip_prefix(workspace::root()).unwrap_or(input);
        console::note(format_args!(
            "to run this input again: cargo xtask fuzz {target} --input {}",
            input.display()
        ));
    }
}

/// Returns the lines with the place and the message of the panic, and with the input in Base64. Logs
/// are often cut, and the file of the input is lost with the machine.
fn cause<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let panic = (lines.iter()).position(|line| line.contains("panicked at "));
    let message = lines[panic.unwrap_or(lines.len())..].iter().take(2);
    let input = lines.iter().filter(|line| line.starts_with("Base64: "));

    message.chain(input).copied()
}

/// Prints the result of each target in the format of `cargo test`, and the total number of inputs.
fn conclude(outcomes: &[(&str, Option<u64>)], took: Duration) -> Result<()> {
    for (name, inputs) in outcomes {
        let verdict = if inputs.is_some() { "ok" } else { "FAILED" };
        anstream::println!("test fuzz::{name} ... {verdict}");
    }
    let failed: Vec<_> = outcomes
        .iter()
        .filter(|(_, inputs)| inputs.is_none())
        .map(|(name, _)| *name)
        .collect();
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    anstream::println!(
        "test result: {verdict}. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        outcomes.len() - failed.len(),
        failed.len(),
        took.as_secs_f64()
    );
    if !failed.is_empty() {
        bail!("fuzzing found a failure: {}", failed.join(", "));
    }

    let total: u64 = outcomes.iter().filter_map(|(_, inputs)| *inputs).sum();
    console::done(
        format_args!("cargo xtask fuzz: {total} inputs in total"),
        took,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_inputs_is_read_from_the_final_statistics() {
        let stats = "Done 12 runs\nstat::number_of_executed_units: 4711\nstat::peak_rss_mb: 3\n";

        assert_eq!(inputs(stats), Some(4_711));
        assert_eq!(inputs("Done"), None);
    }

    #[test]
    fn the_cause_is_the_panic_and_the_input() {
        let lines = [
            "INFO",
            "thread panicked at x.rs:1:2:",
            "no peer",
            "stack backtrace:",
            "Base64: AwgA",
        ];

        assert_eq!(
            Vec::from_iter(cause(&lines)),
            [lines[1], lines[2], lines[4]]
        );
        assert_eq!(cause(&["ALARM: working on the last Unit"]).count(), 0);
    }

    #[test]
    fn each_target_is_declared_and_has_seeds() {
        let manifest = fs::read_to_string(workspace::root().join("fuzz/Cargo.toml")).unwrap();
        let bins: Vec<_> = manifest
            .lines()
            .filter_map(|line| {
                line.strip_prefix("path = \"fuzz_targets/")?
                    .strip_suffix(".rs\"")
            })
            .collect();

        assert_eq!(bins, TARGETS.map(|target| target.name));
        for target in TARGETS {
            let seeds = workspace::root().join("fuzz/corpus").join(target.name);
            assert!(
                fs::read_dir(seeds).unwrap().next().is_some(),
                "{}",
                target.name
            );
        }
    }
}
