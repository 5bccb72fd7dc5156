//! Finds the devices through which the node reaches gateway replicas and other nodes.

use crate::kernel::route::lookup;
use crate::underlay::{Destinations, Underlay};
use futures_util::TryStreamExt as _;
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::route::{RouteAttribute, RouteType};
use rtnetlink::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Looks up the current routes to `destinations`, and returns the routes' devices. Destinations
/// without a route are left out.
pub(crate) async fn observe(handle: &Handle, destinations: &Destinations) -> Underlay {
    let mut underlay = Underlay::default();
    let mut towards_replicas = BTreeSet::new();
    let mut devices = BTreeMap::new();
    for address in destinations.replicas.union(&destinations.remote) {
        let Some(hop) = first_hop(handle, *address).await else {
            continue;
        };
        if destinations.replicas.contains(address) {
            towards_replicas.insert(hop.index);
        }
        let is_remote = !hop.is_local && destinations.remote.contains(address);
        *devices.entry(hop.index).or_default() |= is_remote;
    }
    for (index, leads_to_nodes) in devices {
        let Some(device) = device(handle, index).await else {
            continue;
        };
        if towards_replicas.contains(&index) {
            let mtu = underlay.mtu_bytes.unwrap_or(device.mtu_bytes);
            underlay.mtu_bytes = Some(mtu.min(device.mtu_bytes));
        }
        if leads_to_nodes {
            underlay.interfaces.insert(device.name);
        }
    }

    underlay
}

struct FirstHop {
    index: u32,
    is_local: bool,
}

async fn first_hop(handle: &Handle, address: Ipv4Addr) -> Option<FirstHop> {
    let route = lookup(handle, address).await?;
    let index = route.attributes.iter().find_map(|attribute| {
        if let RouteAttribute::Oif(index) = attribute {
            Some(*index)
        } else {
            None
        }
    })?;

    Some(FirstHop {
        index,
        is_local: route.header.kind == RouteType::Local,
    })
}

struct Device {
    name: String,
    mtu_bytes: u32,
}

async fn device(handle: &Handle, index: u32) -> Option<Device> {
    let request = handle.link().get().match_index(index).execute();
    let links: Vec<_> = request.try_collect().await.ok()?;
    let (mut name, mut mtu_bytes) = (None, None);
    for attribute in &links.first()?.attributes {
        if let LinkAttribute::IfName(it) = attribute {
            name = Some(it.clone());
        } else if let LinkAttribute::Mtu(it) = attribute {
            mtu_bytes = Some(*it);
        }
    }

    Some(Device {
        name: name?,
        mtu_bytes: mtu_bytes?,
    })
}
