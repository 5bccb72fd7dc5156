//! The two devices of the gateway's namespace, by netlink.
//!
//! The overlay is made *from* the pod's namespace *into* the gateway's: its UDP
//! socket stays where it was asked for, so that encapsulated packets use the
//! pod's routes, while the device and all that comes out of it are elsewhere.

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

/// How long the kernel may take to forget a device that an earlier process had.
const FORGET_TIMEOUT: Duration = Duration::from_secs(5);
const FORGET_POLL: Duration = Duration::from_millis(50);

/// A device cannot be had or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is one of that name that is not ours.
    #[error(
        "the device {name} in namespace {namespace} is not ours (it lacks the alias {mark:?}): remove or rename it"
    )]
    Foreign {
        /// The device's name.
        name: String,
        /// Name of the namespace it is in.
        namespace: String,
        /// What ours carry as alias.
        mark: String,
    },

    /// A kernel without VXLAN.
    #[error("this kernel cannot make VXLAN devices: load the module `vxlan` (CONFIG_VXLAN)")]
    NoVxlan,

    /// Another VXLAN device or process has the port.
    #[error(
        "UDP port {0} is in use in this network namespace, perhaps by another VXLAN device: choose another --overlay-port"
    )]
    PortInUse(u16),

    /// A right is missing.
    #[error("failed to {0}: it needs CAP_NET_ADMIN")]
    Privilege(String),

    /// Netlink cannot be used at all.
    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),

    /// Anything else.
    #[error("failed to {step}")]
    Netlink {
        /// What was being done.
        step: String,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
}

/// What the overlay shall be like.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    /// Name of the device.
    pub(crate) name: String,
    /// UDP port of VXLAN.
    pub(crate) port: u16,
    /// Its MAC address.
    pub(crate) mac: [u8; 6],
    /// In bytes.
    pub(crate) mtu: u32,
}

/// A device that is there.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    index: u32,
    alias: Option<String>,
    mac: Vec<u8>,
    overlay_port: Option<u16>,
    /// Identifier of the namespace of its socket, if that is another one.
    socket_namespace: Option<i32>,
}

impl Device {
    /// Tells whether we made it, by the `mark` we leave as its alias.
    pub(crate) fn is_ours(&self, mark: &str) -> bool {
        self.alias.as_deref() == Some(mark)
    }

    /// Tells whether it is an overlay of ours that lacks only the mark: its maker
    /// died between the two steps.
    pub(crate) fn is_unfinished(&self, overlay: &Overlay) -> bool {
        self.alias.is_none() && self.overlay_port.is_some() && self.mac == overlay.mac
    }

    /// Tells whether it serves as `overlay` with its socket in the namespace of
    /// identifier `socket_namespace`.
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

/// Returns the smallest MTU of the devices that packets may leave by, in bytes.
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

/// Creates the overlay from the calling thread's namespace into `namespace`.
///
/// The kernel forgets the device of a namespace that ended some time after its
/// end, and until then refuses another one: that is waited for.
///
/// # Errors
///
/// Returns [`Error`] with the reason and its cure.
pub(crate) fn create_overlay(overlay: &Overlay, namespace: BorrowedFd<'_>) -> Result<(), Error> {
    let deadline = Instant::now() + FORGET_TIMEOUT;
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
                std::thread::sleep(FORGET_POLL);
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

/// Marks `name` as ours, sets its MTU and queue and takes it up, without IPv6 or ARP.
///
/// # Errors
///
/// Returns [`Error`] if the device is gone or its port taken.
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
        // The kernel may lack IPv6, so that this one may fail.
        (
            "",
            by_name()
                .append_extra_attribute(LinkAttribute::AfSpecUnspec(vec![quiet]))
                .build(),
        ),
        ("take up", by_name().up().build()),
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
/// Returns [`Error`] if the kernel refuses; not if it is gone already.
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

/// Returns by which identifier the calling thread's namespace knows `other`;
/// `None` if it does not.
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
        let failed = |source| failure("ask for the identifier of a namespace", source);
        let mut answers = handle.request(request).map_err(failed)?;
        while let Some(answer) = futures_util::StreamExt::next(&mut answers).await {
            if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNsId(message)) =
                answer.payload
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

/// Keeps the kernel's own IPv6 packets off all devices to come in the calling
/// thread's namespace.
///
/// In a container `/proc/sys` may be read-only; then `addr_gen_mode` and the
/// programs, which drop what is not ours, must do.
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
            reason = "most attributes say nothing to us"
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

/// The UDP port of a VXLAN device in external mode.
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
