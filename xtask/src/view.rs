//! `cargo xtask view`: runs a command as if only declared packages were installed on this machine.
//!
//! A test that runs a program of an undeclared package passes on machines where this package is
//! installed, and fails on other machines. So CI runs the tests of each package set in a view.
//!
//! A view is a mount namespace. Its folders of programs and headers contain only files of three
//! groups of packages: the packages of the set ([`setup::needs`]), their dependencies, and Debian's
//! base system. The Rust toolchain and bpf-linker are the only other programs:
//!
//! ```text
//! needs::PACKAGES --closure--> packages --dpkg-query -L--> kept files --hidden--> whiteouts
//!                                                             overlayfs of /usr <----'
//! ```
//!
//! Libraries and files in `/etc` are not hidden.
//!
//! [`setup::needs`]: crate::setup::needs

mod closure;
mod hidden;
mod overlay;

use crate::console;
use crate::setup::needs::Set;
use crate::shell::Shell;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum as _};
use hidden::Kept;
use overlay::Layer;
use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that contains the name of the view's set. It exists only in a view.
const VARIABLE: &str = "LIQO_XTASK_VIEW";

/// Folders of programs and headers, in which a view hides all files of undeclared packages.
const FOLDERS: [&str; 7] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/games",
    "/usr/include",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/local/games",
];

/// The folders of PATH in a view, after the folder of `cargo`.
const PATH: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The programs in the folder of `cargo` that a view does not hide: rustup's proxies and
/// bpf-linker. `cargo xtask setup` installs bpf-linker there.
const TOOLCHAIN: [&str; 9] = [
    "bpf-linker",
    "cargo",
    "cargo-clippy",
    "cargo-fmt",
    "clippy-driver",
    "rustc",
    "rustdoc",
    "rustfmt",
    "rustup",
];

#[derive(Args, Debug)]
pub(crate) struct View {
    /// The set whose packages are visible.
    #[arg(value_enum)]
    set: Set,

    /// Hides this package of the set, too. The option can be repeated.
    #[arg(long, value_name = "PACKAGE")]
    without: Vec<String>,

    /// The command to run, with its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Returns the name of the set if this process runs in a view.
pub(crate) fn current() -> Option<String> {
    env::var(VARIABLE).ok()
}

/// Runs `cargo xtask` with `arguments` in a child process, in the view of `set`.
///
/// # Errors
///
/// Returns the errors of [`run`], and an error if the command fails.
pub(crate) fn xtask(shell: &mut Shell, set: Set, arguments: &[&str]) -> Result<()> {
    let set = name(set);
    let mut command = this_program(&["view", &set, THIS_PROGRAM]);
    command.args(arguments);

    shell
        .run_with_clean_up(command)
        .with_context(|| format!("in the view of the set `{set}`"))
}

/// Returns a call of this program with the same build as this process.
pub(crate) fn this_program(arguments: &[&str]) -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command.args(arguments);
    command
}

/// The path of this process's program. The path remains valid if cargo replaces the file while the
/// process runs.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Enters the view, and replaces this process with the command.
///
/// # Errors
///
/// Returns an error if a declared package is not installed, if this machine has no dpkg, if the
/// kernel refuses a mount, or if the command does not exist.
pub(crate) fn run(shell: &mut Shell, options: &View) -> Result<()> {
    let set = name(options.set);
    let declared = declared(options.set, &options.without)?;
    let kept = kept(shell, &declared)?;
    let cargo = cargo_folder()?;
    let path = env::var_os("PATH").unwrap_or_default();
    let layers = layers(&kept, &cargo, &path)?;
    let emptied = emptied(&layers, &path, &cargo);

    overlay::enter(&layers, &emptied).with_context(|| {
        format!("failed to enter the view of the set `{set}`, which needs root and overlayfs")
    })?;
    let hidden: usize = layers.iter().map(|layer| layer.hidden.len()).sum();
    console::note(format_args!(
        "view of the set `{set}`: {hidden} files of undeclared packages are hidden"
    ));

    let folders = [cargo].into_iter().chain(PATH.map(PathBuf::from));
    let [program, arguments @ ..] = options.command.as_slice() else {
        bail!("there is no command");
    };
    let error = Command::new(program)
        .args(arguments)
        .env(VARIABLE, &set)
        .env(
            "PATH",
            env::join_paths(folders).context("a folder of PATH")?,
        )
        .exec();
    Err(error).with_context(|| format!("failed to start {}", program.display()))
}

fn name(set: Set) -> String {
    set.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .expect("every set has a name")
}

/// Returns the names of the set's packages except those in `without`.
fn declared(set: Set, without: &[String]) -> Result<Vec<&'static str>> {
    let names: Vec<_> = set.packages().map(|package| package.name).collect();
    for name in without {
        if !names.contains(&name.as_str()) {
            bail!("the set `{}` does not declare {name}", self::name(set));
        }
    }

    Ok(names
        .into_iter()
        .filter(|name| !without.iter().any(|it| it == name))
        .collect())
}

/// Returns the files of the declared packages and of their dependencies.
fn kept(shell: &mut Shell, declared: &[&str]) -> Result<Kept> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", closure::FORMAT]);
    let installed = closure::parse(&output(shell, query)?);
    let packages = closure::closure(&installed, declared).map_err(|absent| {
        anyhow::anyhow!(
            "these declared packages are not installed: {}; `cargo xtask ci` installs them",
            absent.join(" ")
        )
    })?;

    let mut query = Command::new("dpkg-query");
    query.arg("--listfiles").args(packages);
    Ok(Kept::parse(&output(shell, query)?))
}

fn output(shell: &mut Shell, command: Command) -> Result<String> {
    let shown = crate::shell::show(&command);
    let output = shell
        .output(command)
        .context("only systems with dpkg know which package a program belongs to")?;
    if !output.status.success() {
        let shown: String = shown.chars().take(80).collect();
        bail!("`{shown}` failed: {}", output.status);
    }

    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the folder of the `cargo` in PATH.
fn cargo_folder() -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folder = env::split_paths(&path).find(|folder| folder.join("cargo").is_file());

    folder
        .and_then(|folder| folder.canonicalize().ok())
        .context("there is no cargo in PATH")
}

/// Returns the overlays of the view: one for `/usr`, and one for the folder of `cargo` if this
/// folder is not below `/usr`.
fn layers(kept: &Kept, cargo: &Path, path: &OsStr) -> Result<Vec<Layer>> {
    let usr = PathBuf::from("/usr");
    let mut folders: BTreeSet<PathBuf> = FOLDERS
        .into_iter()
        .map(PathBuf::from)
        .chain(env::split_paths(path))
        .filter_map(|folder| folder.canonicalize().ok())
        .filter(|folder| folder.starts_with(&usr))
        .collect();
    folders.remove(cargo);

    let mut hidden = Vec::new();
    for folder in &folders {
        hidden.extend(kept.hidden_in(folder)?);
    }
    let tools = Kept::only(TOOLCHAIN.map(|name| cargo.join(name))).hidden_in(cargo)?;
    if cargo.starts_with(&usr) {
        hidden.extend(tools);
        return Ok(vec![Layer { root: usr, hidden }]);
    }

    let programs = Layer { root: usr, hidden };
    let cargo = Layer {
        root: cargo.to_owned(),
        hidden: tools,
    };
    Ok(vec![programs, cargo])
}

/// Returns the folders of PATH that are in no layer. The view replaces these folders with empty
/// folders, so that a command cannot run their programs by absolute path. Folders that contain the
/// checkout, cargo or rustc are not replaced.
fn emptied(layers: &[Layer], path: &OsStr, cargo: &Path) -> Vec<PathBuf> {
    let needed = [crate::workspace::root(), cargo];
    let folders: BTreeSet<PathBuf> = env::split_paths(path)
        .filter_map(|folder| fs::canonicalize(folder).ok())
        .collect();

    folders
        .into_iter()
        .filter(|folder| !layers.iter().any(|layer| folder.starts_with(&layer.root)))
        .filter(|folder| !needed.iter().any(|it| it.starts_with(folder)))
        // The folder of `rustc` is kept, because rustup's proxies start its programs.
        .filter(|folder| !folder.join("rustc").exists())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_declared_package_can_be_left_out() {
        let with = declared(Set::Unit, &[]).unwrap();
        let without = declared(Set::Unit, &["busybox-static".to_owned()]).unwrap();

        assert_eq!(with.len(), without.len() + 1);
        assert!(!without.contains(&"busybox-static"));
        assert!(declared(Set::Unit, &["runc".to_owned()]).is_err());
    }

    #[test]
    fn folders_of_path_outside_of_the_layers_are_emptied_unless_they_are_needed() {
        let temporary = tempfile();
        let other = temporary.join("bin");
        fs::create_dir_all(&other).unwrap();
        let layers = [Layer {
            root: "/usr".into(),
            hidden: Vec::new(),
        }];
        let path = env::join_paths([Path::new("/usr/bin"), crate::workspace::root(), &other]);
        let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
        let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
        let cargo = cargo.expect("cargo has a home").join("bin");

        let emptied = emptied(&layers, &path.unwrap(), &cargo);

        assert_eq!(emptied, [other.canonicalize().unwrap()]);
        fs::remove_dir_all(temporary).unwrap();
    }

    fn tempfile() -> PathBuf {
        env::temp_dir().join(format!("liqo-view-test-{}", std::process::id()))
    }
}
