//! Netlink operations on the devices of the gateway's network namespace.
//!
//! A thread in the pod's namespace creates the overlay device in the gateway's namespace. The UDP
//! socket of the device stays in the pod's namespace and uses the pod's routes. Decapsulated
//! packets appear only in the gateway's namespace.

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

/// Maximum time until the kernel deletes the devices of a namespace that has ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval between two attempts to create a device, for up to [`REMOVAL_TIMEOUT`].
const REMOVAL_POLL: Duration = Duration::from_millis(50);

/// The reason why a device cannot be created, found or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A device that does not belong to this gateway instance has the name of a gateway's device.
    #[error(
        "the device {name} in namespace {namespace} is not ours (it lacks the alias {mark:?}): remove or rename it"
    )]
    Foreign {
        name: String,
        namespace: String,
        /// The interface alias of the devices of this gateway instance.
        mark: String,
    },

    /// The kernel does not support VXLAN.
    #[error("this kernel cannot create VXLAN devices: load the module `vxlan` (CONFIG_VXLAN)")]
    NoVxlan,

    /// Another VXLAN device or process uses the UDP port.
    #[error(
        "UDP port {0} is in use in this network namespace, perhaps by another VXLAN device: choose another --overlay-port"
    )]
    PortInUse(u16),

    /// The process lacks a capability for the action.
    #[error("failed to {0}: it needs CAP_NET_ADMIN")]
    Privilege(String),

    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),

    /// The kernel rejected the action for another reason.
    #[error("failed to {step}")]
    Netlink {
        /// An action, such as "list the devices".
        step: String,
        source: rtnetlink::Error,
    },
}

/// The properties of the overlay device to create.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    pub(crate) name: String,
    /// UDP port of VXLAN.
    pub(crate) port: u16,
    pub(crate) mac: [u8; 6],
    /// MTU in bytes.
    pub(crate) mtu: u32,
}

/// The properties of an existing device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    index: u32,
    alias: Option<String>,
    mac: Vec<u8>,
    /// UDP port of a VXLAN device in external mode; `None` for other devices.
    overlay_port: Option<u16>,
    /// Identifier (nsid) of the network namespace of the VXLAN device's UDP socket; `None` if the
    /// socket is in the same namespace as the device.
    socket_namespace: Option<i32>,
}

impl Device {
    /// Returns whether the device has the alias `mark`.
    pub(crate) fn is_ours(&self, mark: &str) -> bool {
        self.alias.as_deref() == Some(mark)
    }

    /// Returns whether the device is an overlay device of a gateway, without an alias.
    ///
    /// Such a device remains if a gateway creates the device and ends before it sets the alias.
    pub(crate) fn is_unfinished(&self, overlay: &Overlay) -> bool {
        self.alias.is_none() && self.overlay_port.is_some() && self.mac == overlay.mac
    }

    /// Returns whether the device has the port of `overlay`, and its socket is in the namespace
    /// with the identifier `socket_namespace`.
    pub(crate) fn serves(&self, overlay: &Overlay, socket_namespace: Option<i32>) -> bool {
        self.overlay_port == Some(overlay.port)
            && self.socket_namespace.is_some()
            && self.socket_namespace == socket_namespace
    }
}

/// Returns the device `name` in the calling thread's network namespace.
///
/// # Errors
///
/// Returns [`Error`] if the netlink request fails.
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

/// Returns the names of all devices in the calling thread's network namespace.
///
/// # Errors
///
/// Returns [`Error`] if the netlink request fails.
pub(crate) fn names() -> Result<Vec<String>, Error> {
    let links = run(list)?;
    Ok(links.into_iter().filter_map(|link| name(&link)).collect())
}

/// Returns the smallest MTU in bytes of all devices that are up, except loopback.
///
/// # Errors
///
/// Returns [`Error`] if the netlink request fails.
pub(crate) fn underlay_mtu() -> Result<Option<u32>, Error> {
    let links = run(list)?;
    let underlay = links.iter().filter(|link| {
        link.header.flags.contains(LinkFlags::Up)
            && !link.header.flags.contains(LinkFlags::Loopback)
    });
    let mtus = underlay
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

/// Creates the overlay device in `namespace`, with its socket in the calling thread's namespace.
///
/// The kernel deletes the devices of an ended namespace asynchronously. Until then, it rejects a
/// new device with the same port. The function therefore retries for up to [`REMOVAL_TIMEOUT`].
///
/// # Errors
///
/// Returns [`Error`], which names cause and remedy.
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

/// Configures the device `name`, and sets it up.
///
/// Sets alias, MTU and queue length, and disables ARP and automatic IPv6 addresses.
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
        // The kernel may have no IPv6. The empty verb causes the loop below to ignore the error.
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

/// Deletes `device`.
///
/// # Errors
///
/// Returns [`Error`] if the kernel rejects the request. Succeeds if the device does not exist.
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

/// Returns the identifier (nsid) that the calling thread's network namespace has for `other`, if
/// any.
///
/// # Errors
///
/// Returns [`Error`] if the netlink request fails.
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

/// Disables IPv6 in the calling thread's network namespace.
///
/// Otherwise the kernel would send its own IPv6 packets on new devices. If `/proc/sys` is
/// read-only, as in some containers, IPv6 stays enabled. Then `addr_gen_mode` prevents most of
/// these packets, and the eBPF programs drop the rest.
pub(crate) fn disable_ipv6() {
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        if let Err(error) = fs::write(&path, "1") {
            tracing::debug!(%error, path, "failed to disable IPv6 in the gateway's namespace");
        }
    }
}

/// Runs `work` with a netlink socket in the calling thread's network namespace.
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

/// Returns the UDP port of a VXLAN device in external mode; `None` for other devices.
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
