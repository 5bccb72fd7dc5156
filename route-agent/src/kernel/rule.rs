//! Netlink requests for the policy rule, with which the kernel looks up packets in the agent's
//! table.
//!
//! The table contains only routes to the remote clusters' CIDRs and to the probe network. For other
//! destinations, the kernel continues with the next rule. One rule serves all clusters, so the
//! number of rules that the kernel evaluates does not depend on the number of clusters.

use crate::kernel::netlink::{Error, ignore_existing, ignore_missing};
use crate::settings::Settings;
use futures_util::TryStreamExt as _;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion};

const FEATURE: &str = "policy routing (CONFIG_IP_MULTIPLE_TABLES)";

/// Returns whether a rule with all marks of the agent exists.
pub(crate) async fn observe(handle: &Handle, settings: &Settings) -> Result<bool, Error> {
    let rules: Vec<_> = handle
        .rule()
        .get(IpVersion::V4)
        .execute()
        .try_collect()
        .await
        .map_err(Error::from_rtnetlink("list policy rules", FEATURE))?;

    Ok(rules.iter().any(|rule| is_ours(rule, settings)))
}

pub(crate) async fn add(handle: &Handle, settings: &Settings) -> Result<(), Error> {
    let mut request = handle.rule().add().v4();
    *request.message_mut() = message(settings);

    ignore_existing(
        request
            .execute()
            .await
            .map_err(Error::from_rtnetlink("add the policy rule", FEATURE)),
    )
}

pub(crate) async fn delete(handle: &Handle, settings: &Settings) -> Result<(), Error> {
    ignore_missing(
        handle
            .rule()
            .del(message(settings))
            .execute()
            .await
            .map_err(Error::from_rtnetlink("delete the policy rule", FEATURE)),
    )
}

fn message(settings: &Settings) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Table(settings.route_table),
        RuleAttribute::Priority(settings.rule_priority),
        RuleAttribute::Protocol(RouteProtocol::from(settings.route_protocol)),
    ];

    message
}

/// Returns whether `rule` carries all marks of the agent: table, priority and protocol number.
pub(crate) fn is_ours(rule: &RuleMessage, settings: &Settings) -> bool {
    message(settings)
        .attributes
        .iter()
        .all(|mark| rule.attributes.contains(mark))
}
