//! Reads and generates private keys in files. The path is `DIR/SECRET/privateKey`, as in mounted
//! Secrets.

use crate::engine::PrivateKey;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The reason why a key cannot be read or generated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file is missing or not readable.
    #[error("failed to read the key of {gateway} from {path}: create it with `gateway keygen {}`, or correct --keys or spec.secretRef", directory(path).display())]
    Read {
        /// The object that refers to the key.
        gateway: String,
        path: PathBuf,
        source: io::Error,
    },

    /// The file does not have the length of a raw key.
    #[error(
        "{path} of {gateway} has {found} bytes, but a WireGuard key has {}: it must be the raw key, not base64",
        PrivateKey::LEN
    )]
    Len {
        /// The object that refers to the key.
        gateway: String,
        path: PathBuf,
        /// Length of the file in bytes.
        found: u64,
    },

    /// The file exists already. [`generate`] never overwrites a key.
    #[error("{0} exists: remove it first if no peer uses that key any more")]
    Exists(PathBuf),

    /// The new key cannot be stored.
    #[error("failed to write {path}")]
    Write { path: PathBuf, source: io::Error },
}

/// Reads the keys of `secrets`; returns them by name of the Secret.
///
/// Each item is the name of a Secret and the object that refers to the Secret. Errors name this
/// object.
///
/// # Errors
///
/// Returns the first [`Error`], which names object and file.
pub(crate) fn read<'a>(
    directory: &Path,
    secrets: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<String, PrivateKey>, Error> {
    let mut keys = BTreeMap::new();
    for (secret, gateway) in secrets {
        if !keys.contains_key(secret) {
            keys.insert(
                secret.to_owned(),
                read_one(&file(&directory.join(secret)), gateway)?,
            );
        }
    }

    Ok(keys)
}

/// Generates a key and writes it to `directory`, readable by its owner only.
///
/// # Errors
///
/// Returns [`Error::Exists`] if the directory has a key already, or [`Error::Write`].
pub(crate) fn generate(directory: &Path) -> Result<PrivateKey, Error> {
    let path = file(directory);
    let write = |source| Error::Write {
        path: path.clone(),
        source,
    };
    let key = PrivateKey::try_fill(|key| {
        fill_random(key)?;
        // Stores the key as X25519 clamps it (RFC 7748 section 5). Some tools show only clamped
        // keys, which would differ from the file otherwise.
        key[0] &= 248;
        key[31] = (key[31] & 127) | 64;
        Ok(())
    })
    .map_err(write)?;

    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(write)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                Error::Exists(path.clone())
            } else {
                write(error)
            }
        })?;
    file.write_all(key.as_bytes()).map_err(write)?;

    Ok(key)
}

/// Fills `bytes` with random bytes from the kernel.
///
/// # Errors
///
/// Returns an error if `/dev/urandom` cannot be read.
pub(crate) fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    fs::File::open("/dev/urandom")?.read_exact(bytes)
}

fn read_one(path: &Path, gateway: &str) -> Result<PrivateKey, Error> {
    let failed = |source| Error::Read {
        gateway: gateway.to_owned(),
        path: path.to_owned(),
        source,
    };
    // Reads one byte more than a key has, to detect a longer file. The capacity prevents a
    // reallocation, which would leave a copy of the key in memory.
    const LIMIT: usize = PrivateKey::LEN + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(LIMIT * 2));
    let mut file = fs::File::open(path).map_err(failed)?;
    (&mut file)
        .take(LIMIT as u64)
        .read_to_end(&mut bytes)
        .map_err(failed)?;

    PrivateKey::from_slice(&bytes).ok_or_else(|| Error::Len {
        gateway: gateway.to_owned(),
        path: path.to_owned(),
        found: file
            .metadata()
            .map_or(bytes.len() as u64, |metadata| metadata.len()),
    })
}

fn file(directory: &Path) -> PathBuf {
    directory.join("privateKey")
}

fn directory(file: &Path) -> &Path {
    file.parent().unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_generated_key_is_private_and_is_read_back() {
        let directory = Directory::new("generate");
        let key = generate(&directory.0.join("gw-milan")).unwrap();

        let keys = read(&directory.0, [("gw-milan", "GatewayServer milan")]).unwrap();

        assert_eq!(keys["gw-milan"], key);
        let mode = fs::metadata(directory.0.join("gw-milan/privateKey")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_is_never_overwritten() {
        let directory = Directory::new("exists");
        let key = generate(&directory.0).unwrap();

        assert!(matches!(generate(&directory.0), Err(Error::Exists(_))));
        assert_eq!(
            fs::read(directory.0.join("privateKey")).unwrap(),
            key.as_bytes()
        );
    }

    #[test]
    fn a_missing_and_a_wrong_key_are_named_with_their_object() {
        let directory = Directory::new("wrong");
        let wants = [("gw-milan", "GatewayServer milan")];

        let missing = read(&directory.0, wants).unwrap_err().to_string();
        fs::create_dir(directory.0.join("gw-milan")).unwrap();
        fs::write(directory.0.join("gw-milan/privateKey"), "x".repeat(44)).unwrap();
        let wrong = read(&directory.0, wants).unwrap_err().to_string();

        assert!(missing.contains("GatewayServer milan"), "{missing}");
        assert!(missing.contains("gw-milan/privateKey"), "{missing}");
        assert!(wrong.contains("has 44 bytes"), "{wrong}");
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("lq-keys-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
