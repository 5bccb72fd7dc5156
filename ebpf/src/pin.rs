//! Pins maps and links in a BPF file system, so that they outlive the process.
//!
//! ```text
//!  <dir>/maps-3/OUTBOUND_V4 ..   the maps, in one directory per revision of their layout
//!  <dir>/overlay, <dir>/tap      the links, which attach the programs to the devices
//! ```

use crate::error::Error;
use aya::maps::MapData;
use ebpf_common::maps;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Names of the pinned maps: the maps of the programs at the overlay device and at the TAP.
const MAPS: [&str; 10] = [
    maps::OUTBOUND_V4,
    maps::INBOUND_V4,
    maps::LOCAL_V4,
    maps::SOURCES_V4,
    maps::TRANSIT_SOURCES_V4,
    maps::UNKNOWN_SOURCES_V4,
    maps::NODES_V4,
    maps::SIGHTINGS_V4,
    maps::HEARTBEAT,
    maps::COUNTERS,
];

const MAPS_DIR: &str = "maps-";

/// The directory that contains the pins of one gateway.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    dir: PathBuf,
}

impl Pins {
    /// Opens the directory of the pins, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotBpffs`] if the directory is not on a BPF file system, and
    /// [`Error::Pin`] if it cannot be created.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let present = dir.ancestors().find(|path| path.exists());
        let is_bpffs = present
            .and_then(|path| statfs(path).ok())
            .is_some_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC);
        if !is_bpffs {
            return Err(Error::NotBpffs {
                path: dir.to_owned(),
            });
        }

        let pins = Self {
            dir: dir.to_owned(),
        };
        let maps = pins.maps_dir();
        fs::create_dir_all(&maps).map_err(failed("create", &maps))?;
        Ok(pins)
    }

    /// Returns whether all maps of the current layout are pinned, so that a new process can use
    /// them.
    pub(crate) fn has_maps(&self) -> bool {
        self.maps().all(|(_, path)| path.exists())
    }

    /// Returns the name of each map, and the path of its pin.
    pub(crate) fn maps(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let dir = self.maps_dir();
        MAPS.into_iter().map(move |name| (name, dir.join(name)))
    }

    /// Removes pinned maps whose key or value size differs from `sizes`.
    ///
    /// The sizes differ if another build changed the layout without a new [`maps::LAYOUT`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::Pin`] if a pin cannot be removed.
    pub(crate) fn remove_foreign_maps(
        &self,
        sizes: impl Fn(&str) -> Option<(u32, u32)>,
    ) -> Result<(), Error> {
        for (name, path) in self.maps().filter(|(_, path)| path.exists()) {
            let pinned = (MapData::from_pin(&path).ok())
                .and_then(|map| map.info().ok())
                .map(|info| (info.key_size(), info.value_size()));
            if pinned != sizes(name) {
                tracing::warn!(map = name, "replacing a pinned map that has another layout");
                fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }

        Ok(())
    }

    /// Removes the pinned maps of other layout revisions.
    ///
    /// Callers attach the new programs first, so no attached program uses the removed maps.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Pin`] or [`Error::Several`] if pins cannot be read or removed.
    pub(crate) fn remove_other_layouts(&self) -> Result<(), Error> {
        let ours = self.maps_dir();
        for path in children(&self.dir)? {
            let is_maps = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(MAPS_DIR.as_bytes()));
            if is_maps && path != ours {
                remove_all(&path)?;
            }
        }

        Ok(())
    }

    /// Returns the path of the pinned link with this name.
    pub(crate) fn link(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn maps_dir(&self) -> PathBuf {
        self.dir.join(format!("{MAPS_DIR}{}", maps::LAYOUT))
    }
}

/// Removes a directory of pins with its contents, if the directory exists.
///
/// # Errors
///
/// Returns [`Error::Several`] if a file or directory cannot be removed. The function continues
/// after such an error.
pub(crate) fn remove_all(dir: &Path) -> Result<(), Error> {
    let mut errors = Vec::new();
    for path in children(dir)? {
        let removed = if path.is_dir() {
            remove_all(&path)
        } else {
            fs::remove_file(&path).map_err(failed("remove", &path))
        };
        errors.extend(removed.err());
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            errors.push(failed("remove", dir)(error));
        }
        _ => {}
    }

    if errors.is_empty() {
        Ok(())
    } else {
        Err(Error::Several(errors))
    }
}

fn children(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
            .map_err(failed("read", dir)),
    }
}

/// Returns a function that adds the failed action and the path to an error of the file system.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Pin {
        action,
        path: path.clone(),
        source,
    }
}
