//! Netlink requests for the routes in the agent's routing table.

use crate::kernel::netlink::{Error, ignore_missing};
use crate::settings::Settings;
use crate::state::{Route, State};
use futures_util::TryStreamExt as _;
use ipnet::Ipv4Net;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteType,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use std::net::Ipv4Addr;

const FEATURE: &str = "routes by nexthop id (Linux 5.3)";

/// Metric of unreachable routes. It is the maximum, so the kernel prefers any other route to the
/// same destination.
const WORST_METRIC: u32 = u32::MAX;

/// Adds the routes in the agent's table with the agent's routing protocol number to `state`.
pub(crate) async fn observe(
    handle: &Handle,
    settings: &Settings,
    state: &mut State,
) -> Result<(), Error> {
    let filter = RouteMessageBuilder::<Ipv4Addr>::new()
        .table_id(settings.route_table)
        .build();
    let mut request = handle.route().get(filter);
    // The kernel lists only routes whose type and protocol match the request. The builder's default
    // values would exclude the agent's routes.
    request.message_mut().header.scope = Default::default();
    request.message_mut().header.kind = Default::default();
    request.message_mut().header.protocol = Default::default();
    let routes = request.execute().try_collect::<Vec<_>>().await;

    let routes = match routes.map_err(Error::from_rtnetlink("list routes", FEATURE)) {
        // The kernel creates a routing table with its first route, so ENOENT means no routes.
        Err(error) if error.errno() == Some(nix::errno::Errno::ENOENT) => return Ok(()),
        routes => routes?,
    };
    for route in routes.iter().filter(|route| is_ours(route, settings)) {
        let Some(dst) = destination(route) else {
            continue;
        };
        if route.header.kind == RouteType::Unreachable {
            state.unreachable.insert(dst);
        } else {
            state.routes.insert(dst, parse(route));
        }
    }

    Ok(())
}

/// Adds or replaces the unicast route to `dst`.
pub(crate) async fn set(
    handle: &Handle,
    settings: &Settings,
    dst: Ipv4Net,
    to: Route,
) -> Result<(), Error> {
    let mut builder = builder(settings, dst).nhid(to.nexthop).pref_source(to.src);
    if let Some(mtu_bytes) = to.mtu_bytes {
        let metrics = RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu_bytes)]);
        builder.get_mut().attributes.push(metrics);
    }

    handle
        .route()
        .add(builder.build())
        .replace()
        .execute()
        .await
        .map_err(Error::from_rtnetlink("set a route", FEATURE))
}

/// Deletes the unicast route to `dst`.
pub(crate) async fn delete(
    handle: &Handle,
    settings: &Settings,
    dst: Ipv4Net,
) -> Result<(), Error> {
    let route = builder(settings, dst).kind(RouteType::Unicast).build();
    remove(handle, route, "delete a route").await
}

/// Adds an unreachable route to `dst` with [`WORST_METRIC`].
pub(crate) async fn add_unreachable(
    handle: &Handle,
    settings: &Settings,
    dst: Ipv4Net,
) -> Result<(), Error> {
    handle
        .route()
        .add(unreachable(settings, dst))
        .replace()
        .execute()
        .await
        .map_err(Error::from_rtnetlink("add an unreachable route", FEATURE))
}

/// Deletes the route of [`add_unreachable`].
pub(crate) async fn delete_unreachable(
    handle: &Handle,
    settings: &Settings,
    dst: Ipv4Net,
) -> Result<(), Error> {
    remove(
        handle,
        unreachable(settings, dst),
        "delete an unreachable route",
    )
    .await
}

/// Returns whether `address` is assigned to a device in this network namespace.
pub(crate) async fn is_local(handle: &Handle, address: Ipv4Addr) -> bool {
    let route = lookup(handle, address).await;
    route.is_some_and(|route| route.header.kind == RouteType::Local)
}

/// Returns the route that the kernel selects for `address`, `None` if it has no route.
pub(crate) async fn lookup(handle: &Handle, address: Ipv4Addr) -> Option<RouteMessage> {
    let destination = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(address, 32)
        .build();
    let mut request = handle.route().get(destination);
    // With strict checking, the kernel refuses a lookup in which these fields are set.
    request.message_mut().header.scope = Default::default();
    request.message_mut().header.kind = Default::default();
    request.message_mut().header.protocol = Default::default();
    request.message_mut().header.table = 0;
    let routes: Vec<_> = request.execute().try_collect().await.ok()?;

    routes.into_iter().next()
}

/// Returns whether `route` is in the agent's routing table.
pub(crate) fn is_in_our_table(route: &RouteMessage, settings: &Settings) -> bool {
    route
        .attributes
        .contains(&RouteAttribute::Table(settings.route_table))
}

/// Returns whether `route` carries both of the agent's marks, the table and the protocol number.
fn is_ours(route: &RouteMessage, settings: &Settings) -> bool {
    route.header.protocol == RouteProtocol::from(settings.route_protocol)
        && is_in_our_table(route, settings)
}

async fn remove(handle: &Handle, route: RouteMessage, what: &'static str) -> Result<(), Error> {
    ignore_missing(
        handle
            .route()
            .del(route)
            .execute()
            .await
            .map_err(Error::from_rtnetlink(what, FEATURE)),
    )
}

fn unreachable(settings: &Settings, dst: Ipv4Net) -> RouteMessage {
    builder(settings, dst)
        .kind(RouteType::Unreachable)
        .priority(WORST_METRIC)
        .build()
}

fn builder(settings: &Settings, dst: Ipv4Net) -> RouteMessageBuilder<Ipv4Addr> {
    RouteMessageBuilder::<Ipv4Addr>::new()
        .table_id(settings.route_table)
        .protocol(RouteProtocol::from(settings.route_protocol))
        .destination_prefix(dst.network(), dst.prefix_len())
}

fn destination(route: &RouteMessage) -> Option<Ipv4Net> {
    let len = route.header.destination_prefix_length;
    let address = route.attributes.iter().find_map(|attribute| {
        if let RouteAttribute::Destination(RouteAddress::Inet(address)) = attribute {
            Some(*address)
        } else {
            None
        }
    });

    Ipv4Net::new(address.unwrap_or(Ipv4Addr::UNSPECIFIED), len).ok()
}

/// Converts a route. Missing attributes become nexthop id 0, source 0.0.0.0 and no MTU. A route
/// with nexthop id 0 differs from every desired route.
fn parse(route: &RouteMessage) -> Route {
    let mut parsed = Route {
        nexthop: 0,
        src: Ipv4Addr::UNSPECIFIED,
        mtu_bytes: None,
    };
    for attribute in &route.attributes {
        if let RouteAttribute::NhId(id) = attribute {
            parsed.nexthop = *id;
        } else if let RouteAttribute::PrefSource(RouteAddress::Inet(src)) = attribute {
            parsed.src = *src;
        } else if let RouteAttribute::Metrics(metrics) = attribute {
            parsed.mtu_bytes = metrics.iter().find_map(|metric| {
                if let RouteMetric::Mtu(mtu) = metric {
                    Some(*mtu)
                } else {
                    None
                }
            });
        }
    }

    parsed
}
