//! A Go compiler, for programs that exist as Go modules only.
//!
//! Any Go since 1.21 fetches the release that is asked for by itself. Debian's is
//! older, but can fetch it as the module that it is, verified like any other.

use super::install;
use super::needs::{Package, Step};
use super::observe::find;
use crate::shell::Shell;
use crate::{console, workspace};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The release that everything is built with, so that it is the same everywhere.
pub(crate) const RELEASE: &str = "go1.26.8";

/// The first that fetches other releases itself.
const FETCHES_ITSELF: (u32, u32) = (1, 21);

/// What brings a first one.
static PACKAGE: Package = Package {
    name: "golang-go",
    proof: "go",
    why: "fetches the Go that builds Go modules",
};

/// Where installers of Go put it, beside what is in PATH.
const UNPACKED: &str = "/usr/local/go/bin/go";

/// A module's program to build.
#[derive(Debug)]
pub(crate) struct Module {
    /// The package's path.
    pub(crate) path: &'static str,
    /// The module's version, as in a `go.mod`.
    pub(crate) version: &'static str,
}

/// Builds a module's program, unless that was done before, and returns where it is.
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

/// A call of the Go compiler of [`RELEASE`]; installs what is missing.
///
/// # Errors
///
/// Returns an error if there is no Go and none can be installed, or if the one
/// that is there cannot fetch the release.
pub(crate) fn go(shell: &mut Shell) -> Result<Command> {
    let found =
        find(PACKAGE.proof).or_else(|| Some(PathBuf::from(UNPACKED)).filter(|it| it.is_file()));
    let first = match found {
        Some(program) => program,
        None => {
            console::note(format_args!("missing: {} ({})", PACKAGE.name, PACKAGE.why));
            install::apply(shell, &Step::Packages(vec![&PACKAGE]))?;
            find(PACKAGE.proof).context("golang-go was installed, but there is no go in PATH")?
        }
    };
    let version = output(shell, command(&first, &["version"]))?;
    let (release, platform) =
        parse(&version).with_context(|| format!("{version:?} names no release of Go"))?;

    if release >= FETCHES_ITSELF {
        let mut go = command(&first, &[]);
        go.env("GOTOOLCHAIN", RELEASE);
        return Ok(go);
    }
    let mut go = command(&fetch(shell, &first, &platform)?, &[]);
    go.env("GOTOOLCHAIN", "local");
    Ok(go)
}

/// Has an old Go fetch a new one, and returns the program.
fn fetch(shell: &mut Shell, old: &Path, platform: &str) -> Result<PathBuf> {
    let module = format!("golang.org/toolchain@v0.0.1-{RELEASE}.{platform}");
    console::note(format_args!("fetching {module}"));
    let download = command(old, &["mod", "download", "-json", &module]);
    let answer: Downloaded = serde_json::from_str(&output(shell, download)?)
        .with_context(|| format!("go does not tell where {module} is"))?;

    // Modules hold no programs, as far as an old Go knows.
    for folder in ["bin", &format!("pkg/tool/{}", platform.replace('-', "_"))] {
        let folder = answer.dir.join(folder);
        let files = fs::read_dir(&folder)
            .with_context(|| format!("{} is no folder of Go's", folder.display()))?;
        for file in files {
            let path = file?.path();
            fs::set_permissions(&path, Permissions::from_mode(0o755))
                .with_context(|| format!("failed to make {} a program", path.display()))?;
        }
    }
    Ok(answer.dir.join("bin/go"))
}

/// What `go mod download -json` prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    dir: PathBuf,
}

/// A call of a Go that heeds no settings of a module that it happens to stand in.
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

/// Reads `go version go1.19.8 linux/amd64`: the release and the platform.
fn parse(version: &str) -> Option<((u32, u32), String)> {
    let mut words = version.split(' ').skip(2);
    let mut numbers = words.next()?.strip_prefix("go")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    // A release candidate is called 1.26rc1.
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
    fn only_releases_since_1_21_fetch_others() {
        let (release, _) = parse("go version go1.19.8 linux/amd64").unwrap();
        assert!(release < FETCHES_ITSELF);

        let (release, _) = parse("go version go1.26.8 linux/amd64").unwrap();
        assert!(release >= FETCHES_ITSELF);
    }
}
