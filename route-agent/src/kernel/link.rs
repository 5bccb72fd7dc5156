//! Netlink requests for the overlay device and its addresses.

use crate::kernel::netlink::{Error, ignore_existing, ignore_missing};
use crate::settings::{DEVICE_ALIAS, Settings};
use crate::state::Device;
use futures_util::TryStreamExt as _;
use ipnet::Ipv4Net;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVxlan, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use nix::errno::Errno;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVxlan};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

const FEATURE: &str = "VXLAN (CONFIG_VXLAN; modprobe vxlan)";

/// The overlay device as the kernel reports it.
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) device: Device,
}

/// Returns the overlay device, if it exists.
///
/// # Errors
///
/// Returns [`crate::kernel::Error::ForeignDevice`] if another program's device has this name.
pub(crate) async fn observe(
    handle: &Handle,
    settings: &Settings,
) -> Result<Option<Link>, crate::kernel::Error> {
    let Some(message) = find(handle, settings).await? else {
        return Ok(None);
    };
    let link = parse(&message, settings);
    link.map(Some)
        .map_err(|kind| crate::kernel::Error::ForeignDevice {
            name: settings.device().to_owned(),
            kind,
        })
}

pub(crate) async fn index(handle: &Handle, settings: &Settings) -> Result<u32, Error> {
    let what = "find the overlay device";
    let found = find(handle, settings).await?;
    found
        .map(|message| message.header.index)
        .ok_or(Error::Refused {
            what,
            source: Errno::ENODEV.into(),
        })
}

/// Creates the device and brings it up.
pub(crate) async fn create(
    handle: &Handle,
    settings: &Settings,
    device: &Device,
) -> Result<(), Error> {
    let link = LinkMessageBuilder::<LinkVxlan>::new(settings.device())
        .collect_metadata(true)
        .learning(false)
        .port(device.port)
        .address(device.mac.to_vec())
        .mtu(device.mtu_bytes)
        .build();
    handle
        .link()
        .add(link)
        .execute()
        .await
        .map_err(Error::from_rtnetlink("create the overlay device", FEATURE))
        .map_err(|error| error.or_port_in_use(device.port))?;

    set(handle, settings, device).await
}

/// Sets the device's properties except for the port, which cannot be changed, and brings it up.
pub(crate) async fn set(
    handle: &Handle,
    settings: &Settings,
    device: &Device,
) -> Result<(), Error> {
    let index = index(handle, settings).await?;
    let no_ipv6 = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    let no_autoconfiguration = LinkUnspec::new_with_index(index)
        .append_extra_attribute(LinkAttribute::AfSpecUnspec(vec![no_ipv6]))
        .build();
    // The request only avoids an IPv6 link-local address. It fails if the kernel has no IPv6, and
    // no such address is then assigned.
    if let Err(error) = handle.link().set(no_autoconfiguration).execute().await {
        tracing::debug!(%error, "failed to disable IPv6 autoconfiguration of the overlay device");
    }
    let link = LinkUnspec::new_with_index(index)
        .alias(DEVICE_ALIAS)
        .address(device.mac.to_vec())
        .mtu(device.mtu_bytes)
        .arp(false)
        .up()
        .build();

    handle
        .link()
        .set(link)
        .execute()
        .await
        .map_err(Error::from_rtnetlink("set up the overlay device", FEATURE))
        .map_err(|error| error.or_port_in_use(device.port))
}

pub(crate) async fn delete(handle: &Handle, settings: &Settings) -> Result<(), Error> {
    let Some(link) = find(handle, settings).await? else {
        return Ok(());
    };
    ignore_missing(
        handle
            .link()
            .del(link.header.index)
            .execute()
            .await
            .map_err(Error::from_rtnetlink("delete the overlay device", FEATURE)),
    )
}

/// Returns the IPv4 addresses of the device with this index.
pub(crate) async fn addresses(handle: &Handle, index: u32) -> Result<BTreeSet<Ipv4Net>, Error> {
    let messages = address_messages(handle, index).await?;
    Ok(messages.iter().filter_map(net).collect())
}

pub(crate) async fn add_address(
    handle: &Handle,
    settings: &Settings,
    address: Ipv4Net,
) -> Result<(), Error> {
    let index = index(handle, settings).await?;
    ignore_existing(
        handle
            .address()
            .add(index, IpAddr::V4(address.addr()), address.prefix_len())
            .execute()
            .await
            .map_err(Error::from_rtnetlink("add the node's address", FEATURE)),
    )
}

pub(crate) async fn delete_address(
    handle: &Handle,
    settings: &Settings,
    address: Ipv4Net,
) -> Result<(), Error> {
    let index = index(handle, settings).await?;
    let messages = address_messages(handle, index).await?;
    let Some(message) = messages
        .into_iter()
        .find(|message| net(message) == Some(address))
    else {
        return Ok(());
    };
    ignore_missing(
        handle
            .address()
            .del(message)
            .execute()
            .await
            .map_err(Error::from_rtnetlink("delete an address", FEATURE)),
    )
}

/// Returns the overlay device. If another program has created a device with this name, returns that
/// device's kind as an error.
///
/// The agent's device is a VXLAN device in external mode with the agent's alias or MAC address. The
/// MAC address is set at creation, the alias afterwards. If the agent stops between these two
/// steps, the device has no alias.
pub(crate) fn parse(message: &LinkMessage, settings: &Settings) -> Result<Link, String> {
    let mut parsed = Parsed::default();
    for attribute in &message.attributes {
        parsed.read(attribute);
    }
    let marked = parsed.alias == DEVICE_ALIAS || parsed.mac == settings.mac();
    if parsed.kind != InfoKind::Vxlan.to_string() || !parsed.external || !marked {
        return Err(parsed.kind);
    }

    let flags = message.header.flags;
    let ready = flags.contains(LinkFlags::Up)
        && flags.contains(LinkFlags::Noarp)
        && parsed.alias == DEVICE_ALIAS;

    Ok(Link {
        index: message.header.index,
        device: Device {
            port: parsed.port,
            mac: parsed.mac,
            mtu_bytes: parsed.mtu_bytes,
            ready,
        },
    })
}

#[derive(Default)]
struct Parsed {
    kind: String,
    external: bool,
    port: u16,
    mac: [u8; 6],
    mtu_bytes: u32,
    alias: String,
}

impl Parsed {
    fn read(&mut self, attribute: &LinkAttribute) {
        if let LinkAttribute::IfAlias(alias) = attribute {
            self.alias.clone_from(alias);
        } else if let LinkAttribute::Mtu(mtu) = attribute {
            self.mtu_bytes = *mtu;
        } else if let LinkAttribute::Address(mac) = attribute {
            self.mac = mac.as_slice().try_into().unwrap_or_default();
        } else if let LinkAttribute::LinkInfo(infos) = attribute {
            for info in infos {
                if let LinkInfo::Kind(kind) = info {
                    self.kind = kind.to_string();
                } else if let LinkInfo::Data(InfoData::Vxlan(vxlan)) = info {
                    self.external = vxlan.contains(&InfoVxlan::CollectMetadata(true));
                    self.port = vxlan.iter().find_map(port).unwrap_or_default();
                }
            }
        }
    }
}

fn port(info: &InfoVxlan) -> Option<u16> {
    if let InfoVxlan::Port(port) = info {
        Some(*port)
    } else {
        None
    }
}

async fn find(handle: &Handle, settings: &Settings) -> Result<Option<LinkMessage>, Error> {
    let found = handle
        .link()
        .get()
        .match_name(settings.device().to_owned())
        .execute()
        .try_collect::<Vec<_>>()
        .await
        .map_err(Error::from_rtnetlink("find the overlay device", FEATURE));

    match found {
        Ok(links) => Ok(links.into_iter().next()),
        Err(error) if error.errno() == Some(Errno::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn address_messages(handle: &Handle, index: u32) -> Result<Vec<AddressMessage>, Error> {
    let mut request = handle.address().get().set_link_index_filter(index);
    request.message_mut().header.family = AddressFamily::Inet;
    request
        .execute()
        .try_collect()
        .await
        .map_err(Error::from_rtnetlink("list addresses", FEATURE))
}

fn net(message: &AddressMessage) -> Option<Ipv4Net> {
    let local = message.attributes.iter().find_map(|attribute| {
        if let AddressAttribute::Local(IpAddr::V4(address)) = attribute {
            Some(*address)
        } else {
            None
        }
    });
    let address: Ipv4Addr = local?;

    Ipv4Net::new(address, message.header.prefix_len).ok()
}
