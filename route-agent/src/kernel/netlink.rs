//! What all requests over rtnetlink share: the socket, and errors that name the cure.

use netlink_packet_core::ErrorMessage;
use nix::errno::Errno;
use std::io;

/// The kernel refused a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No socket.
    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),

    /// `EPERM`.
    #[error("failed to {what}: the capability NET_ADMIN is missing; run as root or grant it")]
    Privilege {
        /// What was tried.
        what: &'static str,
    },

    /// The kernel does not know what is asked of it.
    #[error("failed to {what}: the kernel lacks {feature}")]
    Feature {
        /// What was tried.
        what: &'static str,
        /// The missing part and where it comes from.
        feature: &'static str,
    },

    /// The overlay's port is taken.
    #[error(
        "UDP port {port} is in use, perhaps by another VXLAN device: choose --overlay-port, also for the gateways"
    )]
    PortInUse {
        /// The port.
        port: u16,
    },

    /// Another's nexthop has the id that ours would have.
    #[error(
        "nexthop id {id} is in use by another program: choose --nexthop-base \
         (ip nexthop show id {id})"
    )]
    NexthopInUse {
        /// The id.
        id: u32,
    },

    /// Any other refusal.
    #[error("failed to {what}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The connection is gone, or answers what was not asked.
    #[error("failed to {what}: {reason}")]
    Protocol {
        /// What was tried.
        what: &'static str,
        /// What happened instead.
        reason: String,
    },
}

impl Error {
    /// The error of a request that `message` refused; `feature` is what its kind of request needs.
    pub(crate) fn refused(
        what: &'static str,
        feature: &'static str,
        message: &ErrorMessage,
    ) -> Self {
        let errno = Errno::from_raw(-message.raw_code());
        if matches!(errno, Errno::EPERM | Errno::EACCES) {
            return Self::Privilege { what };
        }
        if UNKNOWN_TO_THE_KERNEL.contains(&errno) {
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

    /// Names the cause of a device's failure to come up.
    pub(crate) fn or_port_in_use(self, port: u16) -> Self {
        match self.errno() {
            Some(Errno::EEXIST | Errno::EADDRINUSE) => Self::PortInUse { port },
            _ => self,
        }
    }

    /// Names the cause of a nexthop's failure to be made.
    pub(crate) fn or_nexthop_in_use(self, id: u32) -> Self {
        match self.errno() {
            Some(Errno::EEXIST) => Self::NexthopInUse { id },
            _ => self,
        }
    }

    /// The kernel's error number, if the kernel answered with one.
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

/// How the kernel says that it does not know what is asked of it.
const UNKNOWN_TO_THE_KERNEL: [Errno; 3] = [
    Errno::EOPNOTSUPP,
    Errno::EPROTONOSUPPORT,
    Errno::EAFNOSUPPORT,
];

/// Treats an object that is gone already as deleted.
pub(crate) fn gone_is_deleted(result: Result<(), Error>) -> Result<(), Error> {
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

/// Treats an object that is there already as made.
pub(crate) fn there_is_made(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.errno() == Some(Errno::EEXIST) => Ok(()),
        result => result,
    }
}

/// Opens a connection whose dumps the kernel filters.
pub(crate) fn open() -> Result<rtnetlink::Handle, Error> {
    let (connection, handle, _) =
        rtnetlink::new_connection_with_strict_check().map_err(Error::Socket)?;
    tokio::spawn(connection);

    Ok(handle)
}
