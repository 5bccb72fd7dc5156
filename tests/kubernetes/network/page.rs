//! Runs the commands of a page of `docs`, and compares their output with the page.
//!
//! In the page's blocks `console`, a line that begins with `$ ` is a command, and the following lines are its output.
//! The other blocks are not run. The comparison replaces addresses, node ports, ages and the hashes of cluster IDs. It
//! ignores the order of lines, because steps run concurrently, the width of columns, and whether a command or a
//! controller has deleted an object.

use crate::fixture::{Peering, liqoctl_command};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The names of the clusters in the page, and those in the suite.
const NAMES: [(&str, &str); 2] = [("rome", ROME), ("milan", MILAN)];

/// The smallest number of commands of the page, which shows that the blocks were found.
const COMMANDS_MIN: usize = 8;

/// Time in which controllers report a change.
const REPORTED: Duration = Duration::from_secs(10);

/// Runs the commands of the page `name` of the documentation, whose text is `page`.
///
/// # Errors
///
/// Returns an error with the output that differs.
pub(crate) async fn compare(peering: &Peering, name: &str, page: &str) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("liqo-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let removed = folder.clone();
    cleanup::defer("the files of the page", async move || {
        Ok(std::fs::remove_dir_all(removed)?)
    });

    let examples = examples(page);
    ensure!(
        examples.len() >= COMMANDS_MIN,
        "{} commands",
        examples.len()
    );
    let mut different = Vec::new();
    for Example { command, output } in examples {
        let expected = comparable(&output);
        let mut shown = run(peering, &folder, &command)?;
        let start = Instant::now();
        while only_reads(&command) && comparable(&shown) != expected && start.elapsed() < REPORTED {
            shown = run(peering, &folder, &command)?;
        }
        if comparable(&shown) != expected {
            different.push(format!("$ {command}\n{shown}"));
        }
    }
    ensure!(
        different.is_empty(),
        "other output than in docs/{name}:\n{}",
        different.join("\n")
    );
    Ok(())
}

/// Returns whether a command only reads. Such a command is repeated until the controllers have reported the last change.
fn only_reads(command: &str) -> bool {
    command.starts_with("liqoctl info")
        || command.starts_with("kubectl") && command.contains(" get ")
}

/// A command of the page, and its output.
#[derive(Debug, Default, PartialEq, Eq)]
struct Example {
    command: String,
    output: String,
}

fn examples(page: &str) -> Vec<Example> {
    let mut examples = Vec::<Example>::new();
    let mut is_console = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_console) {
            let command = command.to_owned();
            examples.push(Example {
                command,
                ..Example::default()
            });
        } else if is_console && let Some(last) = examples.last_mut() {
            last.output += &format!("{line}\n");
        }
    }
    examples
}

/// Runs a command in the folder, with the programs and the kubeconfigs that the page assumes. Returns its output with
/// the names of the page.
fn run(peering: &Peering, folder: &Path, command: &str) -> Result<String> {
    let mut line = command.to_owned();
    for (name, actual) in NAMES {
        line = line
            .replace(name, actual)
            .replace(&format!("${actual}"), &format!("${name}"));
    }
    let [rome, milan] = peering.clusters();
    let liqoctl = liqoctl_command(rome)?;
    let mut shell = Command::new("bash");
    let functions =
        "liqoctl() { \"$liqoctl_program\" \"$@\"; }; kubectl() { \"$kubectl_program\" \"$@\"; }";
    shell
        .args(["-euc", &format!("{functions}; {line}")])
        .current_dir(folder)
        .env("liqoctl_program", PathBuf::from(liqoctl.get_program()))
        .env("kubectl_program", rome.artifacts().program("kubectl"))
        .env("rome", rome.kubeconfig())
        .env("milan", milan.kubeconfig())
        .env_remove("KUBECONFIG");
    let output = shell.output().context("failed to start bash")?;
    let mut shown = String::from_utf8_lossy(&output.stdout).into_owned();
    shown += &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{command}` failed:\n{shown}");
    for (name, actual) in NAMES {
        shown = shown.replace(actual, name);
    }
    Ok(shown)
}

/// Returns the lines of an output in order, with one space between words, and with values replaced that differ in each
/// run.
fn comparable(output: &str) -> Vec<String> {
    let mut lines: Vec<String> = output
        .lines()
        .map(|line| {
            let words = line.split([' ', '|', '─']).filter(|word| !word.is_empty());
            let words = words.filter(|word| !["correctly", "already"].contains(word));
            words.map(replaced).collect::<Vec<_>>().join(" ")
        })
        // Progress of a command that waits, such as for the deletion of the namespace of the peering before.
        .filter(|line| !line.is_empty() && !line.contains(") Waiting:"))
        .collect();
    lines.sort();
    lines
}

/// Replaces addresses, node ports, ages and the hash of a cluster ID in a word.
fn replaced(word: &str) -> String {
    let is_hash = |it: &str| it.len() == 12 && it.bytes().all(|it| it.is_ascii_hexdigit());
    if let Some((before, _)) = word.rsplit_once('-').filter(|(_, hash)| is_hash(hash)) {
        return format!("{before}-HASH");
    }
    let mut text = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(|it: char| it.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from
            .find(|it: char| !it.is_ascii_digit() && it != '.')
            .unwrap_or(from.len());
        let (number, after) = from.split_at(end);
        text += before;
        let is_word = before.is_empty() && text.is_empty();
        let unit = after.chars().next();
        text += match number.parse::<u32>() {
            _ if number.matches('.').count() == 3 => "ADDRESS",
            Ok(30_000..=32_767) => "PORT",
            Ok(_) if is_word && matches!(unit, Some('s' | 'm' | 'h' | 'd')) && after.len() <= 4 => {
                return "AGE".to_owned();
            }
            _ => number,
        };
        rest = after;
    }
    text + rest
}
