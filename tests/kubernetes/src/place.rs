//! Folders of the laboratory.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;

/// The default of [`cache`]: programs and images, shared by all checkouts and clusters.
const CACHE: &str = "/var/cache/liqo-lab";

/// The default of [`state`].
const STATE: &str = "/var/lib/liqo-lab";

/// The variable with the folder of programs and images of one Kubernetes version.
pub const ARTIFACTS_VARIABLE: &str = "LIQO_LAB_ARTIFACTS";

/// The program that runs nodes, if it is not this one. It is open, so that it stays the same
/// program if cargo replaces its file.
static PROGRAM: OnceLock<File> = OnceLock::new();

/// The folder of programs and images; `LIQO_LAB_CACHE` overrides it.
pub fn cache() -> PathBuf {
    from_environment("LIQO_LAB_CACHE", CACHE)
}

/// The folder of all state of clusters, which `down` removes; `LIQO_LAB_STATE` overrides it.
pub fn state() -> PathBuf {
    from_environment("LIQO_LAB_STATE", STATE)
}

/// The folder of all clusters.
pub fn clusters() -> PathBuf {
    state().join("clusters")
}

/// Sets the program that runs nodes, for tests, which have no commands for it. Only the first call
/// has an effect.
///
/// # Errors
///
/// Returns an error if there is no such file.
pub fn use_program(program: impl AsRef<Path>) -> Result<()> {
    let program = program.as_ref();
    let file =
        File::open(program).with_context(|| format!("failed to open {}", program.display()))?;
    let _ = PROGRAM.set(file);

    Ok(())
}

/// The program that runs nodes: that of [`use_program`], or this one. The path is valid while
/// this process lives, and leads to the same program even if `cargo build` replaces its file.
pub fn program() -> PathBuf {
    let process = process::id();

    match PROGRAM.get() {
        Some(program) => format!("/proc/{process}/fd/{}", program.as_raw_fd()).into(),
        None => format!("/proc/{process}/exe").into(),
    }
}

fn from_environment(variable: &str, default: &str) -> PathBuf {
    env::var_os(variable).map_or_else(|| default.into(), PathBuf::from)
}

/// The programs and images of one Kubernetes version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifacts(PathBuf);

impl Artifacts {
    /// Uses the programs and images in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The folder of this version.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The folder of programs: Kubernetes, containerd, etcd, helm and others.
    pub fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs().join(name)
    }

    /// The folder of CNI plugins.
    pub fn plugins(&self) -> PathBuf {
        self.0.join("cni")
    }

    /// The folder of image archives for nodes.
    pub fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    /// The version of each program, such as `v1.35.4`.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder is incomplete.
    pub fn versions(&self) -> Result<BTreeMap<String, String>> {
        let path = self.0.join("versions.json");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    /// A folder of containerd that contains these images, to be linked into nodes.
    pub fn seed(&self) -> PathBuf {
        self.0.join("seed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    /// Set for a copy of this test program that starts itself once its file is gone.
    const COPY: &str = "LIQO_LAB_TEST_COPY";

    #[test]
    fn a_process_starts_itself_after_its_file_was_replaced() {
        match env::var(COPY).as_deref() {
            Ok("first") => return start_itself(),
            Ok(_) => return println!("\nstarted"),
            Err(_) => {}
        }
        let folder = env::temp_dir().join(format!("liqo-lab-program-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let copy = folder.join("program");
        fs::copy("/proc/self/exe", &copy).unwrap();

        let mut first = this_test(&copy, "first").spawn().unwrap();
        let output = BufReader::new(first.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "ready"));
        fs::remove_file(&copy).unwrap();
        fs::write(&copy, "another build").unwrap();
        first.stdin.take().unwrap().write_all(b"go\n").unwrap();

        assert!(lines.any(|line| line == "started"));
        assert!(first.wait().unwrap().success());
        fs::remove_dir_all(folder).unwrap();
    }

    fn start_itself() {
        println!("\nready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        // Through another program, as a node and a relay are started.
        let mut env = Command::new("env");
        let second = this_test(&program(), "second");
        let status = env
            .arg(second.get_program())
            .args(second.get_args())
            .env(COPY, "second")
            .status();
        assert!(status.unwrap().success());
    }

    fn this_test(program: &Path, copy: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(["--exact", "--nocapture"])
            .arg("place::tests::a_process_starts_itself_after_its_file_was_replaced")
            .env(COPY, copy)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }
}
