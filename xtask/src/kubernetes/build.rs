//! Builds what is missing, and keeps the person before the screen informed.

use super::cache::Cache;
use super::compiler::Go;
use super::complaint;
use super::part::Part;
use super::room;
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

/// How often a build that takes long shows that it is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Builds those of `parts` that are not in the cache.
///
/// # Errors
///
/// Returns an error with its cure if there is no Go or no room on the disk, or if
/// a build fails.
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
    room::check(&go.stores(shell, cache)?)?;
    for part in missing {
        build(shell, &go, cache, part)?;
    }

    Ok(())
}

/// Builds one part.
fn build(shell: &mut Shell, go: &Go, cache: &Cache, part: &Part) -> Result<()> {
    let start = Instant::now();
    let unfinished = Unfinished::begin(&cache.part(part).folder)?;
    // On the disk whose room was checked, and gone with the rest if this is stopped.
    let temporary = unfinished.folder().join("temporary");
    let built = unfinished.folder().join("built");
    for folder in [&temporary, &built] {
        fs::create_dir(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }

    console::note(format_args!("building {}", part.name));
    let mut command = go.command();
    command
        .arg("build")
        // A separator at its end tells the go command that this is a folder.
        .arg("-o")
        .arg(built.join(""))
        .args(&part.arguments)
        .current_dir(&part.module)
        .env("GOTMPDIR", &temporary);
    if let Some(processor) = part.processor {
        command.env("GOARCH", processor.as_str());
    }
    let output = with_signs_of_life(&part.name, || shell.output(command))?;
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

/// Puts programs where they belong, and links beside them.
fn arrange(part: &Part, built: &Path, folder: &Path) -> Result<()> {
    for program in part.programs {
        let file = folder.join(program.place);
        let beside = file.parent().unwrap_or(folder);
        fs::create_dir_all(beside)
            .with_context(|| format!("failed to create {}", beside.display()))?;
        fs::rename(built.join(program.built), &file)
            .with_context(|| format!("go build made no {} of {}", program.built, part.name))?;
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
        complaint::shown(&text),
        complaint::cure(&text)
    )
}

/// Does `work`, and tells every now and then that it goes on.
fn with_signs_of_life<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SIGN_OF_LIFE) {
                let elapsed = console::seconds(start.elapsed());
                console::note(format_args!("still building {what} ({elapsed})"));
            }
        });
        let result = work();
        drop(end);
        result
    })
}
