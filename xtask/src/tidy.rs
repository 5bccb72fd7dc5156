//! Checks that the compiler does not make: sizes of files and functions, file names, purity, import
//! cycles, links in documents, vocabulary.

mod cycles;
mod documented;
mod functions;
mod links;
mod words;

use crate::workspace;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;

/// Maximum number of lines in a source file.
const LINES_MAX: usize = 500;

/// Maximum number of lines in the README. Details are in `docs/`.
const README_LINES_MAX: usize = 110;

/// File names that do not describe the content.
const NAMES_FORBIDDEN: &[&str] = &[
    "helper.rs",
    "helpers.rs",
    "misc.rs",
    "mod.rs",
    "util.rs",
    "utils.rs",
];

/// Modules and crates that must be pure: their results depend only on their arguments. An entry
/// without `src` at its end matches the file and the folder of a module.
const PURE: &[&str] = &[
    "control/api/src",
    "control/edge/src/metric_agent/authorization",
    "control/edge/src/metric_agent/documents",
    "control/edge/src/metric_agent/exposition",
    "control/edge/src/metric_agent/families",
    "control/edge/src/metric_agent/filter",
    "control/edge/src/metric_agent/objects",
    "control/edge/src/metric_agent/route",
    "control/edge/src/metric_agent/selection",
    "control/fabric/src",
    "control/manager/src/certificates/controller",
    "control/manager/src/certificates/server",
    "control/manager/src/certificates/target",
    "control/manager/src/foreign_cluster",
    "control/manager/src/multicluster",
    "control/manager/src/network",
    "control/manager/src/offloading",
    "control/manager/src/replication",
    "control/manager/src/shadow_pod",
    "control/manager/src/webhook/affinity",
    "control/manager/src/webhook/creator",
    "control/manager/src/webhook/daemon_set",
    "control/manager/src/webhook/fields",
    "control/manager/src/webhook/handler",
    "control/manager/src/webhook/patch",
    "control/manager/src/webhook/pod",
    "control/manager/src/webhook/repatriation",
    "control/manager/src/webhook/review",
    "control/manager/src/webhook/shadow_pod",
    "gateway/src/engine",
    "gateway/src/offload",
    "gateway/src/path",
    "gateway/src/planned",
    "gateway/src/tables",
    "ipam/src",
    "route-agent/src/diff",
    "route-agent/src/liveness",
    "route-agent/src/path",
    "route-agent/src/plan",
    "route-agent/src/ruleset",
    "route-agent/src/state",
    "route-agent/src/underlay",
    "route-agent/src/view",
    "tests/kubernetes/src/node/components",
    "tests/kubernetes/src/node/config",
    "tests/kubernetes/src/node/supervise",
    "tests/kubernetes/src/spec",
];

/// Files in [`PURE`] that are not checked, because they wrap a library that reads the clock and
/// random numbers.
const PURE_EXCEPT: &[&str] = &["gateway/src/engine/noise.rs"];

/// Identifiers that give a file access to time, randomness or input and output.
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "kube::Client",
    "std::fs",
    "std::net::UdpSocket",
    "std::thread",
    "async fn",
    "aya::",
    "rtnetlink",
    "tokio",
];

/// Checks every source file and document of the project.
///
/// # Errors
///
/// Returns an error that lists all problems.
pub(crate) fn check() -> Result<String> {
    let files = collect("rs")?;
    let documents = collect("md")?;

    let mut problems = Vec::new();
    for (path, text) in &files {
        problems.extend(problems_of(path, text));
        problems.extend(functions::too_long(path, text));
        problems.extend(words::forbidden(path, text));
    }
    problems.extend(cycles::of_crates(&files));
    problems.extend(links::broken(&documents));
    problems.extend(documents.iter().filter_map(|(path, text)| {
        let lines = text.lines().count();
        (path == "README.md" && lines > README_LINES_MAX)
            .then(|| format!("README.md has {lines} lines, more than {README_LINES_MAX}"))
    }));
    let settings = fs::read_to_string(workspace::root().join(documented::PAGE))
        .with_context(|| format!("failed to read {}", documented::PAGE))?;
    problems.extend(documented::missing(&settings));
    if !problems.is_empty() {
        bail!("not tidy:\n    {}", problems.join("\n    "));
    }

    Ok(format!(
        "{} files, {} documents",
        files.len(),
        documents.len()
    ))
}

fn problems_of(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();

    let lines = text.lines().count();
    if lines > LINES_MAX {
        problems.push(format!(
            "{path} has {lines} lines, more than {LINES_MAX}: split it by role"
        ));
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if NAMES_FORBIDDEN.contains(&name) {
        problems.push(format!(
            "{path}: the name does not say what is in it; `foo.rs` and `foo/bar.rs` do"
        ));
    }
    if is_pure(path) {
        for (number, line) in code(text) {
            if let Some(word) = IMPURE.iter().find(|word| line.contains(**word)) {
                problems.push(format!("{path}:{number}: a pure file names `{word}`"));
            }
        }
    }

    problems
}

fn is_pure(path: &str) -> bool {
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");

    let is_listed = PURE.iter().any(|pure| {
        path.strip_prefix(pure)
            .is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    });

    is_listed && !PURE_EXCEPT.contains(&path) && !is_test
}

/// Returns the lines of code with their numbers. Skips comments and the test module at the end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line))
}

/// Reads all files of the checkout with this extension, sorted by path.
fn collect(extension: &str) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    collect_below(workspace::root(), extension, &mut files)?;
    files.sort();

    Ok(files)
}

fn collect_below(folder: &Path, extension: &str, files: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("failed to list {folder:?}"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_wanted = path.extension().is_some_and(|it| it == extension);
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            collect_below(&path, extension, files)?;
        } else if is_wanted {
            let text =
                fs::read_to_string(&path).with_context(|| format!("failed to read {path:?}"))?;
            let relative = path.strip_prefix(workspace::root()).unwrap_or(&path);
            files.push((relative.to_string_lossy().into_owned(), text));
        }
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_refused() {
        let problems = problems_of("gateway/src/shell.rs", &"\n".repeat(LINES_MAX + 1));

        assert_eq!(
            problems,
            ["gateway/src/shell.rs has 501 lines, more than 500: split it by role"]
        );
    }

    #[test]
    fn a_file_name_without_meaning_is_refused() {
        assert_eq!(problems_of("gateway/src/engine/mod.rs", "").len(), 1);
        assert_eq!(problems_of("gateway/src/utils.rs", "").len(), 1);
        assert!(problems_of("gateway/src/engine.rs", "").is_empty());
    }

    #[test]
    fn a_clock_in_a_pure_file_is_found_with_its_line() {
        let text = "//! No tokio here.\n\nlet now = Instant::now();\n";

        assert_eq!(
            problems_of("gateway/src/engine/peer.rs", text),
            ["gateway/src/engine/peer.rs:3: a pure file names `Instant::now`"]
        );
        assert!(problems_of("gateway/src/shell.rs", text).is_empty());
    }

    #[test]
    fn tests_of_pure_files_may_use_a_clock() {
        let text = "fn f() {}\n\n#[cfg(test)]\nmod tests { fn t() { Instant::now(); } }\n";

        assert!(problems_of("ipam/src/pool.rs", text).is_empty());
        assert!(problems_of("ipam/src/pool/tests.rs", "std::fs::read(x)").is_empty());
    }

    #[test]
    fn this_checkout_is_read_without_its_build_folders() {
        let files = collect("rs").unwrap();

        assert!(files.iter().any(|(path, _)| path == "xtask/src/tidy.rs"));
        assert!(!files.iter().any(|(path, _)| path.starts_with("target/")));
    }
}
