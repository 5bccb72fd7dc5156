//! Netlink connections, requests, and the errors of requests.

use futures_util::StreamExt as _;
use netlink_packet_core::{
    ErrorMessage, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use nix::errno::Errno;
use rtnetlink::proto;
use rtnetlink::sys::SocketAddr;
use std::fmt::Debug;
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

/// A message of a netlink protocol that the crate rtnetlink does not support.
pub(crate) trait Message:
    NetlinkSerializable
    + NetlinkDeserializable
    + Into<NetlinkPayload<Self>>
    + Debug
    + Send
    + Unpin
    + 'static
{
}

impl<M> Message for M where
    M: NetlinkSerializable
        + NetlinkDeserializable
        + Into<NetlinkPayload<M>>
        + Debug
        + Send
        + Unpin
        + 'static
{
}

/// Opens a connection for a protocol. Must be called within a tokio runtime.
pub(crate) fn connect<M: Message>(protocol: isize) -> Result<proto::ConnectionHandle<M>, Error> {
    let (connection, handle, _) = proto::new_connection(protocol).map_err(Error::Socket)?;
    tokio::spawn(connection);

    Ok(handle)
}

/// Sends a request, and returns the messages of the response.
///
/// `what` is the action, as in "failed to {what}", and `feature` the kernel feature that the request needs.
pub(crate) async fn request<M: Message>(
    handle: &proto::ConnectionHandle<M>,
    (what, feature): (&'static str, &'static str),
    message: M,
    flags: u16,
) -> Result<Vec<M>, Error> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    let failed = |reason: &dyn ToString| Error::Protocol {
        what,
        reason: reason.to_string(),
    };
    let responses = handle.request(request, SocketAddr::new(0, 0));
    let mut responses = responses.map_err(|error| failed(&error))?;

    let mut messages = Vec::new();
    while let Some(response) = responses.next().await {
        if let NetlinkPayload::Error(error) = &response.payload
            && error.code.is_some()
        {
            return Err(Error::refused(what, feature, error));
        }
        if let NetlinkPayload::Overrun(_) = response.payload {
            return Err(failed(&"the kernel dropped messages"));
        }
        if let NetlinkPayload::InnerMessage(message) = response.payload {
            messages.push(message);
        }
    }

    Ok(messages)
}
