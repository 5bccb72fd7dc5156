//! The executable file `helm`: bundled in a released liqoctl, or installed.

use anyhow::{Context as _, Result, anyhow};
use flate2::read::GzDecoder;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

/// The bundled helm, compressed with gzip; `None` unless `cargo xtask liqoctl` built this.
static BUNDLED: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/helm.rs"));

/// Path of another helm, which is preferred over the bundled one.
const ENVIRONMENT: &str = "LIQOCTL_HELM";

/// Remedy for a missing helm.
const REMEDY: &str = "use a released liqoctl, which contains helm, install helm (https://helm.sh/docs/intro/install), or set LIQOCTL_HELM to its path";

/// `MFD_EXEC` of `linux/memfd.h` (Linux 6.3 and newer), which nix lacks.
const EXECUTABLE: MFdFlags = MFdFlags::from_bits_retain(0x10);

/// An executable helm.
#[derive(Debug)]
pub(super) enum Program {
    /// An installed one.
    Installed(PathBuf),
    /// The bundled one, in an anonymous file, which the kernel frees when this process ends.
    Unpacked(File),
}

impl Program {
    /// Returns the helm that `LIQOCTL_HELM` names, else the bundled one, else that of PATH.
    ///
    /// # Errors
    ///
    /// Returns an error with the remedy if there is none.
    pub(super) fn find() -> Result<Self> {
        let path = std::env::var_os("PATH");
        Self::choose(std::env::var_os(ENVIRONMENT), BUNDLED, path.as_deref())
    }

    fn choose(
        named: Option<OsString>,
        bundled: Option<&[u8]>,
        path: Option<&OsStr>,
    ) -> Result<Self> {
        if let Some(file) = named {
            return Ok(Self::Installed(file.into()));
        }
        let failure = match bundled.map(unpack) {
            Some(Ok(file)) => return Ok(Self::Unpacked(file)),
            Some(Err(error)) => Err(error).context("failed to unpack the bundled helm"),
            None => Err(anyhow!("this liqoctl was built without helm")),
        };
        match in_path("helm", path) {
            Some(file) => Ok(Self::Installed(file)),
            None => failure.with_context(|| format!("helm is not in PATH: {REMEDY}")),
        }
    }

    /// Returns a path under which this process and its children can execute it.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Installed(path) => path.clone(),
            // The descriptor closes on exec, which is after the kernel has opened the program.
            Self::Unpacked(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
        }
    }
}

fn unpack(compressed: &[u8]) -> Result<File> {
    let file = File::from(memory()?);
    io::copy(&mut GzDecoder::new(compressed), &mut &file)?;
    Ok(file)
}

/// Creates a file in memory that may be executed.
fn memory() -> nix::Result<OwnedFd> {
    match memfd_create(c"helm", MFdFlags::MFD_CLOEXEC | EXECUTABLE) {
        // Older kernels refuse the flag, and allow execution without it.
        Err(Errno::EINVAL) => memfd_create(c"helm", MFdFlags::MFD_CLOEXEC),
        result => result,
    }
}

fn in_path(program: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::GzEncoder;
    use std::io::Read as _;
    use std::process::Command;

    /// `/bin/echo` replaces helm: it is on each machine and prints its arguments.
    fn bundle() -> Vec<u8> {
        let mut compressed = Vec::new();
        GzEncoder::new(File::open("/bin/echo").unwrap(), Compression::fast())
            .read_to_end(&mut compressed)
            .unwrap();
        compressed
    }

    #[test]
    fn the_bundled_program_runs_without_a_file_and_without_path() {
        let program = Program::choose(None, Some(&bundle()), None).unwrap();

        let output = Command::new(program.path())
            .env_clear()
            .args(["upgrade", "liqo"])
            .output()
            .unwrap();

        assert_eq!(output.stdout, b"upgrade liqo\n");
    }

    #[test]
    fn an_installed_helm_is_preferred_only_if_it_is_named() {
        let named = Program::choose(Some("/opt/helm".into()), Some(&bundle()), None).unwrap();
        assert_eq!(named.path(), PathBuf::from("/opt/helm"));

        let folder = std::env::temp_dir().join(format!("liqoctl-path-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("helm"), "").unwrap();
        let path = Some(folder.as_os_str());
        let bundled = Program::choose(None, Some(&bundle()), path).unwrap();
        let damaged = Program::choose(None, Some(b"no gzip"), path).unwrap();
        let without = Program::choose(None, None, path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();

        assert!(matches!(bundled, Program::Unpacked(_)));
        for fallback in [damaged, without] {
            assert_eq!(fallback.path(), folder.join("helm"));
        }
    }

    #[test]
    fn without_helm_the_error_names_cause_and_remedy() {
        let empty = Some(OsStr::new("/none"));
        for (bundled, cause) in [
            (None, "built without helm"),
            (Some(&b"no gzip"[..]), "failed to unpack"),
        ] {
            let error = Program::choose(None, bundled, empty).unwrap_err();

            let error = format!("{error:#}");
            assert!(error.contains(cause), "{error}");
            assert!(error.contains("LIQOCTL_HELM"), "{error}");
            assert!(error.contains("released liqoctl"), "{error}");
        }
    }
}
