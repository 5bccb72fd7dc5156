//! Attaches eBPF programs to the ingress of a device, or replaces the programs of an earlier
//! process.

use crate::error::Error;
use crate::object::is_not_permitted;
use crate::pin::failed;
use aya::programs::links::{FdLink, LinkError, PinnedLink};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};
use aya::util::KernelVersion;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Priority of the gateway's filter on kernels without tcx.
const PRIORITY: u16 = 27761;

/// Handle of the gateway's filter on kernels without tcx.
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// Kernel interface that attaches a program to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// Links of tcx, which Linux 6.6 introduced.
    Tcx,
    /// Filters of the clsact qdisc, for older kernels.
    Clsact,
}

impl Mechanism {
    /// Returns [`Mechanism::Tcx`] if the kernel supports it, else [`Mechanism::Clsact`].
    pub(crate) fn of_kernel() -> Self {
        match KernelVersion::current() {
            Ok(version) if version < KernelVersion::new(6, 6, 0) => Self::Clsact,
            _ => Self::Tcx,
        }
    }
}

/// A program that is attached to the ingress of a device.
#[derive(Debug)]
pub(crate) enum Hook {
    /// A tcx link. The kernel detaches the program when the link is dropped, unless the link is
    /// pinned.
    Link {
        /// The link. The code never reads it, but dropping it would detach an unpinned program.
        _link: SchedClassifierLink,
        /// Path of the pin, if the link is pinned.
        pin: Option<PathBuf>,
    },
    /// A filter, which the kernel keeps until it is removed explicitly.
    Filter {
        /// The filter; `None` after `drop` has released it without removing it.
        link: Option<SchedClassifierLink>,
        /// Whether the filter outlives the process.
        is_kept: bool,
    },
}

impl Hook {
    /// Attaches `program` to the ingress of `device`, and replaces the program of an earlier
    /// process.
    ///
    /// With tcx, `pin` is the path of the pinned link. With clsact, there are no links: the filter
    /// outlives this process if `pin` is set.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NotPermitted`] or [`Error::Attach`] if the kernel refuses to attach the
    /// program, and [`Error::Pin`] if an obsolete pin cannot be removed.
    pub(crate) fn attach(
        program: &mut SchedClassifier,
        device: &str,
        pin: Option<PathBuf>,
        mechanism: Mechanism,
    ) -> Result<Self, Error> {
        match mechanism {
            Mechanism::Tcx => tcx(program, device, pin),
            Mechanism::Clsact => clsact(program, device, pin.is_some()),
        }
    }

    /// Detaches the program, even if it is pinned.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Pin`] if the pin cannot be removed.
    pub(crate) fn detach(mut self) -> Result<(), Error> {
        match &mut self {
            Self::Link { pin, .. } => {
                if let Some(pin) = pin {
                    remove(pin)?;
                }
            }
            Self::Filter { is_kept, .. } => *is_kept = false,
        }

        Ok(())
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let Self::Filter {
            link,
            is_kept: true,
        } = self
        {
            // If the link were dropped, aya would remove the filter.
            std::mem::forget(link.take());
        }
    }
}

fn tcx(program: &mut SchedClassifier, device: &str, pin: Option<PathBuf>) -> Result<Hook, Error> {
    if let Some(pin) = &pin
        && let Some(link) = replace(program, device, pin)?
    {
        return Ok(Hook::Link {
            _link: link,
            pin: Some(pin.clone()),
        });
    }

    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let link = program
        .attach_with_options(device, TcAttachType::Ingress, options)
        .and_then(|id| program.take_link(id))
        .map_err(refused(device))?;
    let Some(pin) = pin else {
        return Ok(Hook::Link {
            _link: link,
            pin: None,
        });
    };

    let link: FdLink = link.try_into().map_err(refused::<LinkError>(device))?;
    let link: FdLink = link.pin(&pin).map_err(refused(device))?.into();
    Ok(Hook::Link {
        _link: link.try_into().map_err(refused::<LinkError>(device))?,
        pin: Some(pin),
    })
}

/// Replaces the program of the pinned link atomically, so that either the old or the new program
/// handles each packet.
///
/// Returns `None` if no link is pinned, or if the link's device no longer exists.
fn replace(
    program: &mut SchedClassifier,
    device: &str,
    pin: &Path,
) -> Result<Option<SchedClassifierLink>, Error> {
    if !pin.exists() {
        return Ok(None);
    }

    let pinned = PinnedLink::from_pin(pin).map_err(refused(device))?;
    let link = FdLink::from(pinned)
        .try_into()
        .map_err(refused::<LinkError>(device))?;
    match program.attach_to_link(link) {
        Ok(id) => Ok(Some(program.take_link(id).map_err(refused(device))?)),
        Err(error) if is_device_gone(&error) => {
            remove(pin)?;
            Ok(None)
        }
        Err(error) => Err(refused(device)(error)),
    }
}

/// Returns whether an update of a link failed because its device was deleted.
///
/// The kernel detaches a link when its device is deleted. Later updates of the link return
/// `ENOLINK`.
fn is_device_gone(error: &ProgramError) -> bool {
    const ENOLINK: i32 = nix::errno::Errno::ENOLINK as i32;

    matches!(error, ProgramError::SyscallError(error) if error.io_error.raw_os_error() == Some(ENOLINK))
}

fn clsact(program: &mut SchedClassifier, device: &str, is_kept: bool) -> Result<Hook, Error> {
    // The call also fails if the qdisc already exists, so a failure is not an error.
    if let Err(error) = tc::qdisc_add_clsact(device) {
        tracing::debug!(device, %error, "clsact not added");
    }

    let options = TcAttachOptions::Netlink(NlOptions {
        priority: PRIORITY,
        handle: HANDLE,
        classid: None,
    });
    let id = match program.attach_with_options(device, TcAttachType::Ingress, options) {
        Ok(id) => Ok(id),
        // The kernel refuses to add a filter that exists. Replace the program of that filter, which
        // an earlier process has left.
        Err(_) => {
            SchedClassifierLink::attached(device, TcAttachType::Ingress, PRIORITY, HANDLE, None)
                .map_err(refused(device))
                .and_then(|link| program.attach_to_link(link).map_err(refused(device)))
        }
    }?;
    let link = program.take_link(id).map_err(refused(device))?;

    Ok(Hook::Filter {
        link: Some(link),
        is_kept,
    })
}

fn remove(pin: &Path) -> Result<(), Error> {
    match fs::remove_file(pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", pin)(error)),
        _ => Ok(()),
    }
}

/// Returns a function that adds the device to an error of the kernel.
fn refused<E>(device: &str) -> impl Fn(E) -> Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    let device = device.to_owned();
    move |source| {
        if is_not_permitted(&source) {
            return Error::NotPermitted {
                action: "attach the eBPF programs",
            };
        }
        Error::Attach {
            device: device.clone(),
            source: Box::new(source),
        }
    }
}
