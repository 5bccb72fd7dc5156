//! Lists the flows of gateways in connection tracking (ctnetlink), and deletes entries whose translation is a former one.
//!
//! The kernel translates the first packet of a flow by the rules of that time, and keeps the translation as long as packets
//! follow. UDP flows with constant ports, such as the end-to-end checks, would thus use a former translation forever.

use crate::gro::Flow;
use crate::kernel::netlink::{self, Error, ignore_missing};
use crate::ruleset::Translation;
use message::{Entry, Message, Selection};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use rtnetlink::proto;
use rtnetlink::sys::protocols::NETLINK_NETFILTER;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use tokio::task::JoinHandle;

mod message;

const FEATURE: &str = "filters of ctnetlink (Linux 5.8, CONFIG_NF_CT_NETLINK)";

/// A netlink connection for requests to connection tracking.
#[derive(Clone)]
pub(crate) struct Handle(proto::ConnectionHandle<Message>);

impl Handle {
    /// Opens the connection. Must be called within a tokio runtime.
    pub(crate) fn open() -> Result<Self, Error> {
        netlink::connect(NETLINK_NETFILTER).map(Self)
    }

    /// Deletes, in the background, the entries of flows to the mapped addresses of `changed` that have another translation
    /// than the one in `present`.
    ///
    /// Entries with the present translation stay, because the deletion of an entry can break a TCP connection. A failure is
    /// logged only, because new flows do not depend on it.
    pub(crate) fn forget(
        &self,
        changed: &BTreeSet<Translation>,
        present: &BTreeSet<Translation>,
    ) -> JoinHandle<()> {
        let present: BTreeMap<_, _> = present.iter().copied().collect();
        let mapped: BTreeSet<_> = changed.iter().map(|(from, _)| *from).collect();
        let mapped = mapped.into_iter().map(|from| (from, present.get(&from)));
        let mapped: Vec<_> = mapped.map(|(from, to)| (from, to.copied())).collect();
        let handle = self.clone();
        // Each address takes a walk through the kernel's whole table, milliseconds if it is large.
        tokio::spawn(async move {
            for (from, to) in mapped {
                if let Err(error) = handle.delete_other(from, to).await {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        error,
                        "flows to mapped addresses that have changed may keep the former translation"
                    );
                    return;
                }
            }
        })
    }

    /// Returns the flows from and to `addresses`, after translation of the destination.
    ///
    /// Takes two walks through the kernel's whole table for each address.
    pub(crate) async fn flows(&self, addresses: Vec<Ipv4Addr>) -> Result<Vec<Flow>, Error> {
        let mut flows = Vec::new();
        for address in addresses {
            for selection in [Selection::From(address), Selection::RepliesFrom(address)] {
                let entries = self.list(selection).await?;
                flows.extend(entries.into_iter().filter_map(|it| it.flow));
            }
        }

        Ok(flows)
    }

    /// Deletes the entries of flows to `from` that are not translated to `to`.
    async fn delete_other(&self, from: Ipv4Addr, to: Option<Ipv4Addr>) -> Result<(), Error> {
        let entries = self.list(Selection::To(from)).await?;
        let is_former = |entry: &Entry| entry.destination == Some(from) && entry.translated != to;
        for entry in entries.into_iter().filter(is_former) {
            let what = "delete an entry of connection tracking";
            let deleted = self.request(what, Message::Delete(entry), NLM_F_ACK).await;
            ignore_missing(deleted.map(drop))?;
        }

        Ok(())
    }

    async fn list(&self, selection: Selection) -> Result<Vec<Entry>, Error> {
        let what = "list entries of connection tracking";

        self.request(what, Message::Dump(selection), NLM_F_DUMP)
            .await
    }

    async fn request(
        &self,
        what: &'static str,
        message: Message,
        flags: u16,
    ) -> Result<Vec<Entry>, Error> {
        let messages = netlink::request(&self.0, (what, FEATURE), message, flags).await?;
        let entries = messages.into_iter().filter_map(|message| match message {
            Message::Entry(entry) => Some(entry),
            Message::Dump(_) | Message::Delete(_) => None,
        });

        Ok(entries.collect())
    }
}
