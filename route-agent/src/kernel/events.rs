//! Notifications of the kernel about changes of objects that the agent uses.
//!
//! The kernel sends notifications by netlink multicast, for changes by the agent and by other
//! programs. If a notification is lost, all of the agent's objects count as changed.

use crate::kernel::netlink::Error;
use crate::kernel::{nexthop, route, rule};
use crate::ruleset::TABLE;
use crate::settings::Settings;
use netlink_packet_core::{
    NetlinkBuffer, NetlinkDeserializable as _, NetlinkHeader, NlasIterator, Parseable as _,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::LinkAttribute;
use rtnetlink::sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use std::io;
use std::ops::BitOrAssign;

/// Multicast groups RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE and
/// RTNLGRP_NEXTHOP of `linux/rtnetlink.h`.
const ROUTE_GROUPS: [u32; 5] = [1, 5, 7, 8, 32];
/// Multicast group NFNLGRP_NFTABLES of `linux/netfilter/nfnetlink.h`.
const NFTABLES_GROUP: u32 = 7;

/// Message types RTM_NEWNEXTHOP and RTM_DELNEXTHOP of `linux/rtnetlink.h`.
const NEXTHOP_MESSAGES: [u16; 2] = [104, 105];

/// Length of `struct nfgenmsg` in bytes.
const NFGENMSG_LEN: usize = 4;
/// Subsystem NFNL_SUBSYS_NFTABLES, in the upper byte of a message's type.
const NFTABLES: u8 = 10;
/// Message NFT_MSG_NEWGEN, which the kernel sends after each transaction on any table. The message
/// has no attribute with a table's name.
const NEW_GENERATION: u8 = 15;
/// Attribute with the table's name in every nftables message except for NFT_MSG_NEWGEN.
const NFTA_TABLE: u16 = 1;

/// Size of the receive buffer in bytes. It holds the notifications of a flush of some thousand
/// routes.
const BUFFER_BYTES: usize = 1 << 20;

/// The parts of the kernel's state that may have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// The agent's device, addresses, policy rule, nexthops or routes.
    pub(crate) netlink: bool,
    /// The agent's nft table.
    pub(crate) filter: bool,
    /// Another device, which may carry overlay frames to gateway replicas.
    pub(crate) underlay: bool,
}

impl Touched {
    pub(crate) const ALL: Self = Self {
        netlink: true,
        filter: true,
        underlay: true,
    };

    pub(crate) fn any(self) -> bool {
        self.netlink || self.filter || self.underlay
    }

    pub(crate) fn is_underlay_only(self) -> bool {
        self.underlay && !self.netlink && !self.filter
    }
}

impl BitOrAssign for Touched {
    fn bitor_assign(&mut self, other: Self) {
        self.netlink |= other.netlink;
        self.filter |= other.filter;
        self.underlay |= other.underlay;
    }
}

/// Netlink sockets that receive the kernel's notifications.
pub(crate) struct Events {
    settings: Settings,
    route: TokioSocket,
    nftables: TokioSocket,
}

impl Events {
    /// Opens the sockets and joins the multicast groups. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Socket`] if the kernel refuses to open a socket.
    pub(crate) fn open(settings: Settings) -> Result<Self, Error> {
        Ok(Self {
            settings,
            route: subscribe(NETLINK_ROUTE, &ROUTE_GROUPS).map_err(Error::Socket)?,
            nftables: subscribe(NETLINK_NETFILTER, &[NFTABLES_GROUP]).map_err(Error::Socket)?,
        })
    }

    /// Waits until an object of the agent or the underlay may have changed. The future is cancel
    /// safe.
    pub(crate) async fn next(&self) -> Touched {
        loop {
            let touched = tokio::select! {
                received = self.route.recv_from_full() => {
                    classify(received, |header, payload| touched_by_route(header, payload, &self.settings))
                }
                received = self.nftables.recv_from_full() => classify(received, touched_by_nftables),
            };
            if touched.any() {
                return touched;
            }
        }
    }
}

fn classify(
    received: io::Result<(Vec<u8>, SocketAddr)>,
    touched_by: impl Fn(&NetlinkHeader, &[u8]) -> Touched,
) -> Touched {
    let bytes = match received {
        Ok((bytes, _)) => bytes,
        Err(error) => {
            tracing::debug!(%error, "the kernel dropped notifications");
            return Touched::ALL;
        }
    };

    let mut touched = Touched::default();
    for (header, payload) in messages(&bytes) {
        touched |= touched_by(&header, payload);
    }
    touched
}

fn subscribe(protocol: isize, groups: &[u32]) -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(protocol)?;
    socket.socket_mut().bind(&SocketAddr::new(0, 0))?;
    for group in groups {
        socket.socket_mut().add_membership(*group)?;
    }
    if let Err(error) = socket.socket_mut().set_rx_buf_sz(BUFFER_BYTES) {
        tracing::debug!(%error, "failed to enlarge the buffer of the netlink socket");
    }

    Ok(socket)
}

/// Returns the netlink messages in one datagram. Ends at the first malformed message.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (NetlinkHeader, &[u8])> {
    std::iter::from_fn(move || {
        let buffer = NetlinkBuffer::new_checked(&bytes).ok()?;
        let header = NetlinkHeader::parse(&buffer).ok()?;
        let len = usize::try_from(header.length).ok()?;
        let payload = bytes.get(size_of::<NlMsgHdr>()..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();

        Some((header, payload))
    })
}

/// Type with the size of `struct nlmsghdr` of `linux/netlink.h`.
type NlMsgHdr = [u8; 16];

fn touched_by_route(header: &NetlinkHeader, payload: &[u8], settings: &Settings) -> Touched {
    let netlink = |netlink| Touched {
        netlink,
        ..Touched::default()
    };
    if NEXTHOP_MESSAGES.contains(&header.message_type) {
        let parsed = nexthop::message::Nexthop::parse(payload);
        return netlink(parsed.map_or(true, |it| settings.is_nexthop(it.id)));
    }

    match RouteNetlinkMessage::deserialize(header, payload) {
        Ok(RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link)) => {
            let name = LinkAttribute::IfName(settings.device().to_owned());
            if link.attributes.contains(&name) {
                netlink(true)
            } else {
                Touched {
                    underlay: true,
                    ..Touched::default()
                }
            }
        }
        Ok(RouteNetlinkMessage::NewAddress(address) | RouteNetlinkMessage::DelAddress(address)) => {
            let label = AddressAttribute::Label(settings.device().to_owned());
            netlink(address.attributes.contains(&label))
        }
        Ok(RouteNetlinkMessage::NewRoute(it) | RouteNetlinkMessage::DelRoute(it)) => {
            netlink(route::is_in_our_table(&it, settings))
        }
        Ok(RouteNetlinkMessage::NewRule(it) | RouteNetlinkMessage::DelRule(it)) => {
            netlink(rule::is_ours(&it, settings))
        }
        Ok(_) => Touched::default(),
        Err(_) => netlink(true),
    }
}

fn touched_by_nftables(header: &NetlinkHeader, payload: &[u8]) -> Touched {
    let [message, subsystem] = header.message_type.to_le_bytes();
    if subsystem != NFTABLES || message == NEW_GENERATION {
        return Touched::default();
    }
    let attributes = payload.get(NFGENMSG_LEN..).unwrap_or_default();
    let table = NlasIterator::new(attributes)
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == NFTA_TABLE);

    Touched {
        filter: table.is_none_or(|it| it.value().strip_suffix(b"\0") == Some(TABLE.as_bytes())),
        ..Touched::default()
    }
}
