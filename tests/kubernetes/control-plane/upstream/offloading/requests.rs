//! Requests of a user, by the audit log.

use crate::authentication::site::Site;
use anyhow::Result;
use kubernetes_lab::control_plane::AuditEvent;
use std::collections::BTreeSet;

/// Returns the writes of a user that the API server has stored, as `VERB RESOURCE NAME`, in their order.
pub(crate) fn writes(site: &Site, user: &str) -> Result<Vec<String>> {
    let events = events(site, user)?;
    let stored = events.iter().filter(|it| {
        let is_write = ["create", "update", "patch", "delete"].contains(&&*it.verb);
        is_write && matches!(code(it), 200..300) && !it.request_uri.contains("dryRun=")
    });

    Ok(stored.map(described).collect())
}

/// Returns those of the writes that begin with `VERB RESOURCE` and are in a list.
pub(crate) fn of<'a>(writes: &'a [String], resources: &[&str]) -> Vec<&'a str> {
    let is_of = |write: &&String| {
        let resource = write.split(' ').nth(1).unwrap_or_default();
        resources.contains(&resource)
    };
    writes.iter().filter(is_of).map(String::as_str).collect()
}

/// Returns the requests of a user that were always forbidden.
pub(super) fn forbidden(site: &Site, user: &str) -> Result<BTreeSet<String>> {
    let events = events(site, user)?;
    let with = |is_forbidden: bool| {
        let events = events.iter();
        let events = events.filter(move |it| (code(it) == 403) == is_forbidden);
        events.map(described).collect::<BTreeSet<_>>()
    };

    Ok(&with(true) - &with(false))
}

fn events(site: &Site, user: &str) -> Result<Vec<AuditEvent>> {
    let mut events = site.control_plane().audit_log().since(0)?;
    events.retain(|it| it.user.username == user && it.stage == "ResponseComplete");

    Ok(events)
}

fn code(event: &AuditEvent) -> u16 {
    event.response_status.as_ref().map_or(0, |it| it.code)
}

fn described(event: &AuditEvent) -> String {
    let object = event.object_ref.clone().unwrap_or_default();
    let part = match &*object.subresource {
        "" => String::new(),
        part => format!("/{part}"),
    };

    format!("{} {}{part} {}", event.verb, object.resource, object.name)
}
