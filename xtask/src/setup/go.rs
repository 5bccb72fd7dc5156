//! Finds or installs a Go compiler, for programs that are available only as Go modules.
//!
//! Go 1.21 and later download the release that `GOTOOLCHAIN` names. Debian's Go is older, but can
//! download a Go release as a module. Go verifies the checksum of each module.

use super::install;
use super::needs::{GO, PACKAGES, Step};
use super::observe::find;
use crate::shell::Shell;
use crate::{console, view, workspace};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The Go release that builds all programs. The pinned release makes builds equal on all machines.
pub(crate) const RELEASE: &str = "go1.26.8";

/// The first Go release that downloads the release in `GOTOOLCHAIN`.
const GOTOOLCHAIN_SINCE: (u32, u32) = (1, 21);

/// The path of Go after an installation according to go.dev. The folder may be missing in PATH.
const UNPACKED: &str = "/usr/local/go/bin/go";

#[derive(Debug)]
pub(crate) struct Module {
    /// The import path of the program's Go package.
    pub(crate) path: &'static str,
    /// The version of the module, as in a `go.mod`.
    pub(crate) version: &'static str,
}

/// Builds a program and returns its path. Reuses the program of an earlier call.
///
/// # Errors
///
/// Returns an error that names the step that failed.
pub(crate) fn program(shell: &mut Shell, module: &Module) -> Result<PathBuf> {
    let name = module.path.rsplit('/').next().unwrap_or(module.path);
    let folder = workspace::target()
        .join("tools")
        .join(format!("{name}-{}", module.version));
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }

    let start = Instant::now();
    let source = format!("{}@{}", module.path, module.version);
    console::step(format_args!("Building {source} with {RELEASE}"));
    let mut install = go(shell)?;
    install
        .args(["install", "-trimpath", &source])
        .env("GOBIN", &folder)
        .env("CGO_ENABLED", "0");
    shell
        .run(install)
        .with_context(|| format!("failed to build {source}"))?;
    console::done(format_args!("{name} {}", module.version), start.elapsed());

    Ok(program)
}

/// Returns a call of the Go compiler of [`RELEASE`]. Installs Go first if it is missing.
///
/// # Errors
///
/// Returns an error if Go is missing and cannot be installed, or if the installed Go cannot
/// download [`RELEASE`].
pub(crate) fn go(shell: &mut Shell) -> Result<Command> {
    let unpacked = || Some(PathBuf::from(UNPACKED)).filter(|path| path.is_file());
    let first = match find("go").or_else(unpacked) {
        Some(program) => program,
        None => install(shell)?,
    };
    let version = output(shell, command(&first, &["version"]))?;
    let (release, platform) =
        parse(&version).with_context(|| format!("{version:?} names no release of Go"))?;

    if release >= GOTOOLCHAIN_SINCE {
        let mut go = command(&first, &[]);
        go.env("GOTOOLCHAIN", RELEASE);
        return Ok(go);
    }
    let mut go = command(&fetch(shell, &first, &platform)?, &[]);
    go.env("GOTOOLCHAIN", "local");
    Ok(go)
}

/// Installs Debian's Go package, and returns the path of the go command.
fn install(shell: &mut Shell) -> Result<PathBuf> {
    if let Some(set) = view::current() {
        bail!("the view of the set `{set}` has no Go: declare {GO} in setup/needs.rs");
    }
    let package = PACKAGES
        .iter()
        .find(|package| package.name == GO)
        .expect("the table of packages has Go");

    install::apply(shell, &Step::Packages(vec![package]))?;
    find("go").with_context(|| format!("{GO} was installed, but there is no go in PATH"))
}

/// Downloads [`RELEASE`] as a module with an older Go, and returns the path of the downloaded go
/// command.
fn fetch(shell: &mut Shell, old: &Path, platform: &str) -> Result<PathBuf> {
    let module = format!("golang.org/toolchain@v0.0.1-{RELEASE}.{platform}");
    console::note(format_args!("fetching {module}"));
    let download = command(old, &["mod", "download", "-json", &module]);
    let answer: Downloaded = serde_json::from_str(&output(shell, download)?)
        .with_context(|| format!("`go mod download` of {module} printed no folder"))?;

    // Go before 1.21 removes the executable bits when it unpacks a module.
    for folder in ["bin", &format!("pkg/tool/{}", platform.replace('-', "_"))] {
        let folder = answer.dir.join(folder);
        let files = fs::read_dir(&folder)
            .with_context(|| format!("{} is missing from the downloaded Go", folder.display()))?;
        for file in files {
            let path = file?.path();
            fs::set_permissions(&path, Permissions::from_mode(0o755))
                .with_context(|| format!("failed to make {} a program", path.display()))?;
        }
    }
    Ok(answer.dir.join("bin/go"))
}

/// The requested value in the output of `go mod download -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    dir: PathBuf,
}

/// Returns a call of Go that ignores the caller's Go settings and current module.
fn command(go: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(go);
    command
        .args(arguments)
        .current_dir("/")
        .env_remove("GOFLAGS")
        .env_remove("GOOS")
        .env_remove("GOARCH");
    command
}

fn output(shell: &mut Shell, command: Command) -> Result<String> {
    let shown = crate::shell::show(&command);
    let output = shell.output(command)?;
    if !output.status.success() {
        bail!(
            "`{shown}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }

    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Parses the release and the platform in a line such as `go version go1.19.8 linux/amd64`.
fn parse(version: &str) -> Option<((u32, u32), String)> {
    let mut words = version.split(' ').skip(2);
    let mut numbers = words.next()?.strip_prefix("go")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    // The version of a release candidate looks like 1.26rc1.
    let minor = numbers.next()?;
    let digits = minor.find(|it: char| !it.is_ascii_digit());
    let minor = minor[..digits.unwrap_or(minor.len())].parse().ok()?;

    Some(((major, minor), words.next()?.replace('/', "-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_the_third_word() {
        let old = parse("go version go1.19.8 linux/amd64");
        let candidate = parse("go version go1.26rc1 linux/arm64");

        assert_eq!(old, Some(((1, 19), "linux-amd64".into())));
        assert_eq!(candidate, Some(((1, 26), "linux-arm64".into())));
        assert_eq!(parse("go version devel"), None);
    }

    #[test]
    fn releases_before_1_21_ignore_gotoolchain() {
        let (release, _) = parse("go version go1.19.8 linux/amd64").unwrap();
        assert!(release < GOTOOLCHAIN_SINCE);

        let (release, _) = parse("go version go1.26.8 linux/amd64").unwrap();
        assert!(release >= GOTOOLCHAIN_SINCE);
    }
}
