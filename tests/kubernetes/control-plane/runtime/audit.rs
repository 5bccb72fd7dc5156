//! Selects events of the audit log.

use kubernetes_lab::control_plane::AuditEvent;

/// Returns the events of writes that have reached a stage.
pub(super) fn writes<'a>(
    events: &'a [AuditEvent],
    stage: &str,
) -> impl Iterator<Item = &'a AuditEvent> {
    let is_write = |it: &&AuditEvent| ["patch", "update", "create"].contains(&it.verb.as_str());
    events
        .iter()
        .filter(move |it| it.stage == stage)
        .filter(is_write)
}

/// Returns the HTTP status code of the response.
pub(super) fn code(event: &AuditEvent) -> Option<u16> {
    event.response_status.as_ref().map(|status| status.code)
}
