//! The folders of the laboratory's files.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;

/// The default of [`cache`]. All checkouts and clusters share the programs and images in this
/// folder.
const CACHE: &str = "/var/cache/liqo-lab";

/// The default of [`state`], which contains the files of clusters.
const STATE: &str = "/var/lib/liqo-lab";

/// The environment variable with the folder of programs and images of one Kubernetes version.
pub const ARTIFACTS_VARIABLE: &str = "LIQO_LAB_ARTIFACTS";

/// The program that [`use_program`] has set. The file stays open, so that nodes run the same
/// program even if cargo replaces the file.
static PROGRAM: OnceLock<File> = OnceLock::new();

/// Returns the folder of programs and images. `LIQO_LAB_CACHE` overrides the default.
pub fn cache() -> PathBuf {
    from_environment("LIQO_LAB_CACHE", CACHE)
}

/// Returns the folder of the state of all clusters. The command `down` removes this folder.
/// `LIQO_LAB_STATE` overrides the default.
pub fn state() -> PathBuf {
    from_environment("LIQO_LAB_STATE", STATE)
}

/// Returns the folder that contains a folder for each cluster.
pub fn clusters() -> PathBuf {
    state().join("clusters")
}

/// Sets the program that runs nodes. Test programs call this function, because they do not have the
/// commands `node-start` and `node-init`. Only the first call has an effect.
///
/// # Errors
///
/// Returns an error if the file cannot be opened.
pub fn use_program(program: impl AsRef<Path>) -> Result<()> {
    let program = program.as_ref();
    let file =
        File::open(program).with_context(|| format!("failed to open {}", program.display()))?;
    let _ = PROGRAM.set(file);

    Ok(())
}

/// Returns the path of the program that runs nodes. This is the program that [`use_program`] has
/// set, or else the program of this process. The path remains valid until this process ends, even
/// if `cargo build` replaces the file.
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

/// A folder with the programs and images of one Kubernetes version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifacts(PathBuf);

impl Artifacts {
    /// Refers to the artifacts in `folder`, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Returns the folder of all artifacts.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the folder of programs such as `kubelet`, `containerd`, `etcd` and `helm`.
    pub fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }

    /// Returns the path of the program `name`, such as `kubectl`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs().join(name)
    }

    /// Returns the folder of the CNI plugins' programs.
    pub fn plugins(&self) -> PathBuf {
        self.0.join("cni")
    }

    /// Returns the folder of image archives for nodes.
    pub fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    /// Returns the version of each program, such as `v1.35.4`.
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

    /// Returns the folder of unpacked images for containerd, to which nodes have hard links.
    pub fn seed(&self) -> PathBuf {
        self.0.join("seed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    /// The environment variable with the role of a copy of this test program. The copy `first`
    /// starts the copy `second` after the test has replaced their common file.
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
        // `env` opens the path of the program in another process, as the start of a node does.
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
