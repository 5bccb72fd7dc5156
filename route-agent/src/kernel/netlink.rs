//! The connection for rtnetlink requests, and the errors of these requests.

use netlink_packet_core::ErrorMessage;
use nix::errno::Errno;
use std::io;

/// The kernel refused a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel refused to open a netlink socket.
    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),

    /// The kernel returned `EPERM` or `EACCES`.
    #[error("failed to {what}: the capability NET_ADMIN is missing; run as root or grant it")]
    Privilege {
        /// The action, as in "failed to {what}".
        what: &'static str,
    },

    /// The kernel returned an error number of [`UNSUPPORTED`].
    #[error("failed to {what}: the kernel lacks {feature}")]
    Feature {
        /// The action, as in "failed to {what}".
        what: &'static str,
        /// The missing feature, with the kernel version or option that provides it.
        feature: &'static str,
    },

    /// Another socket or VXLAN device uses the overlay's UDP port.
    #[error(
        "UDP port {port} is in use, perhaps by another VXLAN device: set another --overlay-port here and for the gateways"
    )]
    PortInUse { port: u16 },

    /// Another program has created a nexthop with an id in the agent's range.
    #[error(
        "nexthop id {id} is in use by another program: set another --nexthop-base \
         (ip nexthop show id {id})"
    )]
    NexthopInUse { id: u32 },

    /// The kernel returned any other error.
    #[error("failed to {what}")]
    Refused {
        /// The action, as in "failed to {what}".
        what: &'static str,
        source: io::Error,
    },

    /// The netlink connection is closed, or the kernel's response is malformed or incomplete.
    #[error("failed to {what}: {reason}")]
    Protocol {
        /// The action, as in "failed to {what}".
        what: &'static str,
        reason: String,
    },
}

impl Error {
    /// Converts the kernel's error. `feature` names the kernel feature that the request needs.
    pub(crate) fn refused(
        what: &'static str,
        feature: &'static str,
        message: &ErrorMessage,
    ) -> Self {
        let errno = Errno::from_raw(-message.raw_code());
        if matches!(errno, Errno::EPERM | Errno::EACCES) {
            return Self::Privilege { what };
        }
        if UNSUPPORTED.contains(&errno) {
            return Self::Feature { what, feature };
        }

        Self::Refused {
            what,
            source: errno.into(),
        }
    }

    /// Returns a function that converts errors of the crate rtnetlink.
    pub(crate) fn from_rtnetlink(
        what: &'static str,
        feature: &'static str,
    ) -> impl Fn(rtnetlink::Error) -> Self {
        move |error| {
            if let rtnetlink::Error::NetlinkError(message) = error {
                return Self::refused(what, feature, &message);
            }
            Self::Protocol {
                what,
                reason: error.to_string(),
            }
        }
    }

    /// Converts the kernel's errors for a port in use to [`Error::PortInUse`]. The kernel returns
    /// these errors when a VXLAN device is created or brought up.
    pub(crate) fn or_port_in_use(self, port: u16) -> Self {
        match self.errno() {
            Some(Errno::EEXIST | Errno::EADDRINUSE) => Self::PortInUse { port },
            _ => self,
        }
    }

    /// Converts the kernel's error for an existing nexthop id to [`Error::NexthopInUse`].
    pub(crate) fn or_nexthop_in_use(self, id: u32) -> Self {
        match self.errno() {
            Some(Errno::EEXIST) => Self::NexthopInUse { id },
            _ => self,
        }
    }

    /// Returns the kernel's error number, `None` if the kernel did not return one.
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error().map(Errno::from_raw),
            Self::Privilege { .. } => Some(Errno::EPERM),
            Self::Feature { .. } => Some(Errno::EOPNOTSUPP),
            Self::PortInUse { .. } => Some(Errno::EADDRINUSE),
            Self::NexthopInUse { .. } => Some(Errno::EEXIST),
            Self::Socket(_) | Self::Protocol { .. } => None,
        }
    }
}

/// Error numbers that the kernel returns if it does not support a request.
const UNSUPPORTED: [Errno; 3] = [
    Errno::EOPNOTSUPP,
    Errno::EPROTONOSUPPORT,
    Errno::EAFNOSUPPORT,
];

/// Turns the error of deleting an object that does not exist into success.
pub(crate) fn ignore_missing(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error)
            if matches!(
                error.errno(),
                Some(Errno::ENOENT | Errno::ESRCH | Errno::ENODEV | Errno::EADDRNOTAVAIL)
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// Turns the error of adding an object that exists into success.
pub(crate) fn ignore_existing(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.errno() == Some(Errno::EEXIST) => Ok(()),
        result => result,
    }
}

/// Opens an rtnetlink connection with strict checking. Without strict checking, the kernel ignores
/// the filters of dump requests.
pub(crate) fn open() -> Result<rtnetlink::Handle, Error> {
    let (connection, handle, _) =
        rtnetlink::new_connection_with_strict_check().map_err(Error::Socket)?;
    tokio::spawn(connection);

    Ok(handle)
}
