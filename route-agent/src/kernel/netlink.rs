//! The socket of all rtnetlink requests, and errors that name the remedy.

use netlink_packet_core::ErrorMessage;
use nix::errno::Errno;
use std::io;

/// The kernel refused a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The socket cannot be opened.
    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),

    /// `EPERM`.
    #[error("failed to {what}: the capability NET_ADMIN is missing; run as root or grant it")]
    Privilege {
        /// The action, as in "failed to {what}".
        what: &'static str,
    },

    /// The kernel does not support the request.
    #[error("failed to {what}: the kernel lacks {feature}")]
    Feature {
        /// The action, as in "failed to {what}".
        what: &'static str,
        /// The feature, with the kernel version or option that has it.
        feature: &'static str,
    },

    /// The overlay's port is in use.
    #[error(
        "UDP port {port} is in use, perhaps by another VXLAN device: choose --overlay-port, also for the gateways"
    )]
    PortInUse { port: u16 },

    /// A foreign nexthop has our id.
    #[error(
        "nexthop id {id} is in use by another program: choose --nexthop-base \
         (ip nexthop show id {id})"
    )]
    NexthopInUse { id: u32 },

    /// Any other error of the kernel.
    #[error("failed to {what}")]
    Refused {
        /// The action, as in "failed to {what}".
        what: &'static str,
        source: io::Error,
    },

    /// The connection is closed, or the response is malformed.
    #[error("failed to {what}: {reason}")]
    Protocol {
        /// The action, as in "failed to {what}".
        what: &'static str,
        reason: String,
    },
}

impl Error {
    /// Converts the kernel's error; `feature` is the one that the request needs.
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

    /// Returns a converter for the errors of rtnetlink.
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

    /// Converts an error of bringing up a VXLAN device.
    pub(crate) fn or_port_in_use(self, port: u16) -> Self {
        match self.errno() {
            Some(Errno::EEXIST | Errno::EADDRINUSE) => Self::PortInUse { port },
            _ => self,
        }
    }

    /// Converts an error of creating a nexthop.
    pub(crate) fn or_nexthop_in_use(self, id: u32) -> Self {
        match self.errno() {
            Some(Errno::EEXIST) => Self::NexthopInUse { id },
            _ => self,
        }
    }

    /// The kernel's error number, if it sent one.
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

/// The kernel's error numbers for an unsupported request.
const UNSUPPORTED: [Errno; 3] = [
    Errno::EOPNOTSUPP,
    Errno::EPROTONOSUPPORT,
    Errno::EAFNOSUPPORT,
];

/// Succeeds if the object to delete does not exist.
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

/// Succeeds if the object to add exists.
pub(crate) fn ignore_existing(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.errno() == Some(Errno::EEXIST) => Ok(()),
        result => result,
    }
}

/// Opens a connection with strict checking, with which the kernel filters dumps.
pub(crate) fn open() -> Result<rtnetlink::Handle, Error> {
    let (connection, handle, _) =
        rtnetlink::new_connection_with_strict_check().map_err(Error::Socket)?;
    tokio::spawn(connection);

    Ok(handle)
}
