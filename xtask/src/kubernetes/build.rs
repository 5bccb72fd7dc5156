//! Builds missing parts of the cache, and prints the progress. A part is the result of one
//! `go build`.

use super::cache::Cache;
use super::compiler::Go;
use super::disk_space;
use super::go_error;
use super::part::Part;
use super::unfinished::Unfinished;
use crate::console;
use crate::shell::Shell;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between the progress messages of a build.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);

/// Builds the parts that are missing in the cache.
///
/// # Errors
///
/// Returns an error with the remedy if Go is missing, if the disk is full, or if a build
/// fails.
pub(super) fn missing(shell: &mut Shell, cache: &Cache, parts: &[Part]) -> Result<()> {
    let missing: Vec<_> = parts
        .iter()
        .filter(|part| !cache.part(part).is_complete())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }

    let names: Vec<_> = missing.iter().map(|part| part.name.as_str()).collect();
    console::note(format_args!(
        "to build: {} (the first time takes up to a quarter of an hour with 2 processors)",
        names.join(", ")
    ));
    let go = Go::find(shell)?;
    disk_space::check(&go.stores(shell, cache)?)?;
    for part in missing {
        build(shell, &go, cache, part)?;
    }

    Ok(())
}

/// Builds one part and adds it to the cache.
fn build(shell: &mut Shell, go: &Go, cache: &Cache, part: &Part) -> Result<()> {
    let start = Instant::now();
    let unfinished = Unfinished::begin(&cache.part(part).folder)?;
    // The temporary folder is on the disk whose free space was checked. It is removed together
    // with an interrupted build.
    let temporary = unfinished.folder().join("temporary");
    let built = unfinished.folder().join("built");
    for folder in [&temporary, &built] {
        fs::create_dir(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }

    console::note(format_args!("building {}", part.name));
    let mut command = go.command();
    command
        .arg("build")
        // `go build -o` treats a path with a trailing separator as a folder.
        .arg("-o")
        .arg(built.join(""))
        .args(&part.arguments)
        .current_dir(&part.module)
        .env("GOTMPDIR", &temporary);
    if let Some(processor) = part.processor {
        command.env("GOARCH", processor.as_str());
    }
    let output = with_progress(&part.name, || shell.output(command))?;
    if !output.status.success() {
        bail!(failure(part, &output));
    }

    arrange(part, &built, unfinished.folder())?;
    for folder in [&temporary, &built] {
        fs::remove_dir_all(folder)
            .with_context(|| format!("failed to remove {}", folder.display()))?;
    }
    unfinished.finish()?;
    console::done(&part.name, start.elapsed());
    Ok(())
}

/// Moves the built programs to their paths in the part, and creates their symbolic links.
fn arrange(part: &Part, built: &Path, folder: &Path) -> Result<()> {
    for program in part.programs {
        let file = folder.join(program.place);
        let beside = file.parent().unwrap_or(folder);
        fs::create_dir_all(beside)
            .with_context(|| format!("failed to create {}", beside.display()))?;
        fs::rename(built.join(program.built), &file).with_context(|| {
            format!("`go build` produced no {} of {}", program.built, part.name)
        })?;
        for link in program.links {
            let link = beside.join(link);
            symlink(program.name(), &link)
                .with_context(|| format!("failed to create {}", link.display()))?;
        }
    }

    Ok(())
}

fn failure(part: &Part, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);

    format!(
        "failed to build {} in {}:\n    {}\n{}",
        part.name,
        part.module.display(),
        go_error::excerpt(&text),
        go_error::remedy(&text)
    )
}

/// Prints the elapsed time every [`PROGRESS_INTERVAL`] while `work` runs.
fn with_progress<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PROGRESS_INTERVAL) {
                let elapsed = console::seconds(start.elapsed());
                console::note(format_args!("still building {what} ({elapsed})"));
            }
        });
        let result = work();
        drop(end);
        result
    })
}
