//! The one policy rule: every packet asks our table first.
//!
//! The table holds remote clusters' CIDRs only, so that anything else falls through
//! to the next rule, and the cost does not grow with the number of clusters.

use crate::kernel::netlink::{Error, gone_is_deleted, there_is_made};
use crate::settings::Settings;
use futures_util::TryStreamExt as _;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion};

const FEATURE: &str = "policy routing (CONFIG_IP_MULTIPLE_TABLES)";

/// Returns whether our rule is there.
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

/// Adds the rule.
pub(crate) async fn add(handle: &Handle, settings: &Settings) -> Result<(), Error> {
    let mut request = handle.rule().add().v4();
    *request.message_mut() = message(settings);

    there_is_made(
        request
            .execute()
            .await
            .map_err(Error::from_rtnetlink("add the policy rule", FEATURE)),
    )
}

/// Deletes the rule.
pub(crate) async fn delete(handle: &Handle, settings: &Settings) -> Result<(), Error> {
    gone_is_deleted(
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

/// Whether `rule` carries all three of our marks.
pub(crate) fn is_ours(rule: &RuleMessage, settings: &Settings) -> bool {
    message(settings)
        .attributes
        .iter()
        .all(|mark| rule.attributes.contains(mark))
}
