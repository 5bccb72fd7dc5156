//! Netlink requests for nexthop objects.
//!
//! A *hop* is a single nexthop to one gateway replica. A *group* is a nexthop group of hops.

use crate::kernel::netlink::{self, Error, ignore_missing};
use crate::settings::{FIRST_GROUP, Settings};
use crate::state::{Hop, State};
use message::{Message, Nexthop, Target};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use rtnetlink::proto;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use std::collections::BTreeSet;

pub(crate) mod message;

const FEATURE: &str = "nexthop objects (Linux 5.3) with IP encapsulation (CONFIG_LWTUNNEL)";

/// A netlink connection for nexthop messages, which the crate rtnetlink does not support.
pub(crate) struct Handle(proto::ConnectionHandle<Message>);

impl Handle {
    /// Opens the connection. Must be called within a tokio runtime.
    pub(crate) fn open() -> Result<Self, Error> {
        netlink::connect(NETLINK_ROUTE).map(Self)
    }

    /// Adds the hops and groups with the agent's ids and routing protocol number to `state`.
    pub(crate) async fn observe(
        &self,
        settings: &Settings,
        state: &mut State,
    ) -> Result<(), Error> {
        let nexthops = self
            .request("list nexthops", Message::Get, NLM_F_DUMP)
            .await?;
        for nexthop in nexthops.into_iter().filter(|it| is_ours(it, settings)) {
            match nexthop.target {
                Some(Target::Hop { hop, .. }) if !is_group_id(nexthop.id, settings) => {
                    state.hops.insert(nexthop.id, hop);
                }
                Some(Target::Group(members)) if is_group_id(nexthop.id, settings) => {
                    state.groups.insert(nexthop.id, members);
                }
                // A nexthop of another type, such as a blackhole, becomes an empty group or
                // `Hop::UNKNOWN`. Both differ from every desired value, so that the agent replaces
                // the nexthop.
                _ if is_group_id(nexthop.id, settings) => {
                    state.groups.insert(nexthop.id, BTreeSet::new());
                }
                _ => {
                    state.hops.insert(nexthop.id, Hop::UNKNOWN);
                }
            }
        }

        Ok(())
    }

    /// Creates or replaces a hop through the device with the interface index `device`.
    pub(crate) async fn set_hop(
        &self,
        settings: &Settings,
        id: u32,
        hop: &Hop,
        device: u32,
        replace: bool,
    ) -> Result<(), Error> {
        let target = Target::Hop { hop: *hop, device };
        self.set("set a nexthop", settings, id, target, replace)
            .await
    }

    /// Creates or replaces a group of the hops with the ids `members`.
    pub(crate) async fn set_group(
        &self,
        settings: &Settings,
        id: u32,
        members: &BTreeSet<u32>,
        replace: bool,
    ) -> Result<(), Error> {
        let target = Target::Group(members.clone());
        self.set("set a nexthop group", settings, id, target, replace)
            .await
    }

    /// Deletes a hop or group. Succeeds if the id does not exist.
    pub(crate) async fn delete(&self, id: u32) -> Result<(), Error> {
        let nexthop = Nexthop {
            id,
            protocol: 0,
            target: None,
        };
        let deleted = self
            .request("delete a nexthop", Message::Delete(nexthop), NLM_F_ACK)
            .await;

        ignore_missing(deleted.map(drop))
    }

    async fn set(
        &self,
        what: &'static str,
        settings: &Settings,
        id: u32,
        target: Target,
        replace: bool,
    ) -> Result<(), Error> {
        let nexthop = Nexthop {
            id,
            protocol: settings.route_protocol,
            target: Some(target),
        };
        // With NLM_F_EXCL, the kernel returns an error if another program has created this id.
        let mode = if replace { NLM_F_REPLACE } else { NLM_F_EXCL };
        let flags = NLM_F_ACK | NLM_F_CREATE | mode;

        self.request(what, Message::New(nexthop), flags)
            .await
            .map(drop)
            .map_err(|error| error.or_nexthop_in_use(id))
    }

    async fn request(
        &self,
        what: &'static str,
        message: Message,
        flags: u16,
    ) -> Result<Vec<Nexthop>, Error> {
        let messages = netlink::request(&self.0, (what, FEATURE), message, flags).await?;
        let nexthops = messages.into_iter().filter_map(|message| match message {
            Message::New(nexthop) => Some(nexthop),
            Message::Delete(_) | Message::Get => None,
        });

        Ok(nexthops.collect())
    }
}

/// Returns whether `nexthop` carries both of the agent's marks, the id and the protocol number.
pub(crate) fn is_ours(nexthop: &Nexthop, settings: &Settings) -> bool {
    settings.is_nexthop(nexthop.id) && nexthop.protocol == settings.route_protocol
}

fn is_group_id(id: u32, settings: &Settings) -> bool {
    id >= settings.nexthop_base.saturating_add(FIRST_GROUP)
}
