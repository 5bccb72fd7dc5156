//! Netlink operations on the devices of the gateway's network namespace.
//!
//! The overlay device is created from the pod's namespace in the gateway's namespace. Its UDP socket
//! stays in the pod's namespace and uses the pod's routes; decapsulated packets appear only in the
//! gateway's namespace.

use futures_util::TryStreamExt as _;
use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVxlan, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use nix::errno::Errno;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

/// Time in which the kernel removes the device of a namespace that has ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
const REMOVAL_POLL: Duration = Duration::from_millis(50);

/// A device cannot be created, found or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A device of that name exists and lacks our mark.
    #[error(
        "the device {name} in namespace {namespace} is not ours (it lacks the alias {mark:?}): remove or rename it"
    )]
    Foreign {
        /// The device.
        name: String,
        namespace: String,
        /// The alias of our devices.
        mark: String,
    },

    /// The kernel has no VXLAN.
    #[error("this kernel cannot create VXLAN devices: load the module `vxlan` (CONFIG_VXLAN)")]
    NoVxlan,

    /// Another VXLAN device or process uses the port.
    #[error(
        "UDP port {0} is in use in this network namespace, perhaps by another VXLAN device: choose another --overlay-port"
    )]
    PortInUse(u16),

    /// A capability is missing.
    #[error("failed to {0}: it needs CAP_NET_ADMIN")]
    Privilege(String),

    /// No netlink socket.
    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),

    /// Any other cause.
    #[error("failed to {step}")]
    Netlink {
        /// An action, such as "list the devices".
        step: String,
        source: rtnetlink::Error,
    },
}

/// The desired overlay device.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    pub(crate) name: String,
    /// UDP port of VXLAN.
    pub(crate) port: u16,
    pub(crate) mac: [u8; 6],
    /// In bytes.
    pub(crate) mtu: u32,
}

/// An existing device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    index: u32,
    alias: Option<String>,
    mac: Vec<u8>,
    /// UDP port of a VXLAN device in external mode.
    overlay_port: Option<u16>,
    /// Identifier of its socket's namespace, if that is another one.
    socket_namespace: Option<i32>,
}

impl Device {
    /// Returns whether it has our `mark` as its alias.
    pub(crate) fn is_ours(&self, mark: &str) -> bool {
        self.alias.as_deref() == Some(mark)
    }

    /// Returns whether it is an overlay of ours without the mark: its creator died between creating
    /// and marking it.
    pub(crate) fn is_unfinished(&self, overlay: &Overlay) -> bool {
        self.alias.is_none() && self.overlay_port.is_some() && self.mac == overlay.mac
    }

    /// Returns whether it can be adopted as `overlay`, with its socket in the namespace of identifier
    /// `socket_namespace`.
    pub(crate) fn serves(&self, overlay: &Overlay, socket_namespace: Option<i32>) -> bool {
        self.overlay_port == Some(overlay.port)
            && self.socket_namespace.is_some()
            && self.socket_namespace == socket_namespace
    }
}

/// Returns the device of that name in the calling thread's namespace.
///
/// # Errors
///
/// Returns [`Error`] if netlink fails.
pub(crate) fn find(name: &str) -> Result<Option<Device>, Error> {
    run(async |handle| {
        let found = handle
            .link()
            .get()
            .match_name(name.to_owned())
            .execute()
            .try_next()
            .await;
        match found {
            Ok(message) => Ok(message.map(device)),
            Err(error) if errno(&error) == Some(Errno::ENODEV) => Ok(None),
            Err(source) => Err(failure(&format!("look for the device {name}"), source)),
        }
    })
}

/// Returns the names of all devices in the calling thread's namespace.
///
/// # Errors
///
/// Returns [`Error`] if netlink fails.
pub(crate) fn names() -> Result<Vec<String>, Error> {
    let links = run(list)?;
    Ok(links.into_iter().filter_map(|link| name(&link)).collect())
}

/// Returns the smallest MTU of all devices that are up, without loopback, in bytes.
///
/// # Errors
///
/// Returns [`Error`] if netlink fails.
pub(crate) fn underlay_mtu() -> Result<Option<u32>, Error> {
    let links = run(list)?;
    let leaving = links.iter().filter(|link| {
        link.header.flags.contains(LinkFlags::Up)
            && !link.header.flags.contains(LinkFlags::Loopback)
    });
    let mtus = leaving
        .flat_map(|link| &link.attributes)
        .filter_map(|attribute| {
            if let LinkAttribute::Mtu(mtu) = attribute {
                Some(*mtu)
            } else {
                None
            }
        });

    Ok(mtus.min())
}

/// Creates the overlay from the calling thread's namespace in `namespace`.
///
/// The kernel removes the devices of an ended namespace asynchronously, and refuses an equal one until
/// then: waits for that.
///
/// # Errors
///
/// Returns [`Error`] with cause and remedy.
pub(crate) fn create_overlay(overlay: &Overlay, namespace: BorrowedFd<'_>) -> Result<(), Error> {
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        let message = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Vxlan)
            .name(&overlay.name)
            .address(overlay.mac.to_vec())
            .mtu(overlay.mtu)
            .arp(false)
            .setns_by_fd(namespace.as_raw_fd())
            .set_info_data(InfoData::Vxlan(vec![
                InfoVxlan::CollectMetadata(true),
                InfoVxlan::Learning(false),
                InfoVxlan::Port(overlay.port),
            ]))
            .build();
        let added = run(async |handle| Ok(handle.link().add(message).execute().await))?;
        match added {
            Ok(()) => return Ok(()),
            Err(error) if errno(&error) == Some(Errno::EEXIST) && Instant::now() < deadline => {
                std::thread::sleep(REMOVAL_POLL);
            }
            Err(error) => {
                return Err(match errno(&error) {
                    Some(Errno::EOPNOTSUPP) => Error::NoVxlan,
                    Some(Errno::EEXIST) => Error::PortInUse(overlay.port),
                    _ => failure(&format!("create the device {}", overlay.name), error),
                });
            }
        }
    }
}

/// Marks the device `name` as ours, sets its MTU and queue length, and sets it up, without IPv6 or ARP.
///
/// # Errors
///
/// Returns [`Error`] if the device does not exist or its port is in use.
pub(crate) fn configure(
    name: &str,
    mark: &str,
    mtu: u32,
    queue_len: u32,
    port: u16,
) -> Result<(), Error> {
    let quiet = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    let by_name = || LinkUnspec::new_with_name(name).arp(false);
    let steps = [
        (
            "configure",
            by_name().alias(mark).mtu(mtu).txqueuelen(queue_len).build(),
        ),
        // Fails where the kernel has no IPv6.
        (
            "",
            by_name()
                .append_extra_attribute(LinkAttribute::AfSpecUnspec(vec![quiet]))
                .build(),
        ),
        ("set up", by_name().up().build()),
    ];
    run(async |handle| {
        for (verb, message) in steps {
            match handle.link().set(message).execute().await {
                Err(error) if errno(&error) == Some(Errno::EADDRINUSE) => {
                    return Err(Error::PortInUse(port));
                }
                Err(error) if !verb.is_empty() => {
                    return Err(failure(&format!("{verb} the device {name}"), error));
                }
                _ => {}
            }
        }
        Ok(())
    })
}

/// Deletes a device.
///
/// # Errors
///
/// Returns [`Error`] if the kernel refuses; a device that does not exist is no error.
pub(crate) fn delete(device: &Device) -> Result<(), Error> {
    run(
        async |handle| match handle.link().del(device.index).execute().await {
            Err(error) if errno(&error) != Some(Errno::ENODEV) => {
                Err(failure("delete a device", error))
            }
            _ => Ok(()),
        },
    )
}

/// Returns the identifier of the namespace `other` in the calling thread's namespace, if it has one.
///
/// # Errors
///
/// Returns [`Error`] if netlink fails.
pub(crate) fn namespace_id(other: impl AsFd) -> Result<Option<i32>, Error> {
    let fd = u32::try_from(other.as_fd().as_raw_fd()).expect("a descriptor is not negative");
    let mut message = NsidMessage::default();
    message.attributes.push(NsidAttribute::Fd(fd));
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetNsId(message));
    request.header.flags = NLM_F_REQUEST;
    run(async |mut handle| {
        let failed = |source| failure("look up the identifier of a namespace", source);
        let mut replies = handle.request(request).map_err(failed)?;
        while let Some(reply) = futures_util::StreamExt::next(&mut replies).await {
            if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNsId(message)) =
                reply.payload
            {
                let id = message.attributes.iter().find_map(|attribute| {
                    if let NsidAttribute::Id(id) = attribute {
                        Some(*id)
                    } else {
                        None
                    }
                });
                return Ok(id.filter(|id| *id >= 0));
            }
        }
        Ok(None)
    })
}

/// Disables IPv6 on all later devices in the calling thread's namespace, so that the kernel sends no
/// packets of its own.
///
/// In a container `/proc/sys` may be read-only. Then `addr_gen_mode` prevents most of these packets, and
/// the programs drop the rest.
pub(crate) fn disable_ipv6() {
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        if let Err(error) = fs::write(&path, "1") {
            tracing::debug!(%error, path, "failed to disable IPv6 in the gateway's namespace");
        }
    }
}

/// Runs `work` with a netlink socket in the calling thread's namespace.
fn run<T>(work: impl AsyncFnOnce(Handle) -> Result<T, Error>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::Socket)?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(Error::Socket)?;
        let connection = tokio::spawn(connection);
        let done = work(handle).await;
        connection.abort();
        done
    })
}

async fn list(handle: Handle) -> Result<Vec<LinkMessage>, Error> {
    handle
        .link()
        .get()
        .execute()
        .try_collect()
        .await
        .map_err(|source| failure("list the devices", source))
}

fn name(link: &LinkMessage) -> Option<String> {
    link.attributes.iter().find_map(|attribute| {
        if let LinkAttribute::IfName(name) = attribute {
            Some(name.clone())
        } else {
            None
        }
    })
}

fn device(link: LinkMessage) -> Device {
    let mut device = Device {
        index: link.header.index,
        alias: None,
        mac: Vec::new(),
        overlay_port: None,
        socket_namespace: None,
    };
    for attribute in link.attributes {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "most attributes are not needed"
        )]
        match attribute {
            LinkAttribute::IfAlias(alias) => device.alias = Some(alias),
            LinkAttribute::Address(mac) => device.mac = mac,
            LinkAttribute::LinkNetNsId(id) => device.socket_namespace = Some(id),
            LinkAttribute::LinkInfo(infos) => device.overlay_port = external_port(&infos),
            _ => {}
        }
    }
    device
}

/// Returns the UDP port of a VXLAN device in external mode.
fn external_port(infos: &[LinkInfo]) -> Option<u16> {
    let data = infos.iter().find_map(|info| {
        if let LinkInfo::Data(InfoData::Vxlan(data)) = info {
            Some(data)
        } else {
            None
        }
    })?;
    let port = data.iter().find_map(|info| {
        if let InfoVxlan::Port(port) = info {
            Some(*port)
        } else {
            None
        }
    });

    port.filter(|_| data.contains(&InfoVxlan::CollectMetadata(true)))
}

fn failure(step: &str, source: rtnetlink::Error) -> Error {
    if errno(&source) == Some(Errno::EPERM) {
        return Error::Privilege(step.to_owned());
    }
    Error::Netlink {
        step: step.to_owned(),
        source,
    }
}

fn errno(error: &rtnetlink::Error) -> Option<Errno> {
    if let rtnetlink::Error::NetlinkError(message) = error {
        Some(Errno::from_raw(-message.raw_code()))
    } else {
        None
    }
}
