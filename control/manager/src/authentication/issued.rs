//! Credentials that a provider has issued to this cluster. The provider may be hostile.

use super::eks;
use super::item::WorkItem;
use super::objects::warn;
use control_api::authentication::auth_params::AuthParams;
use control_credentials::{Certificate, ClusterKey, digest};
use control_runtime::{Plan, Ref};
use k8s_openapi::ByteString;

/// Most characters of an address in an Event.
const SHOWN_MAX: usize = 200;

/// Most characters of a fingerprint in an Event.
const FINGERPRINT_LEN: usize = 16;

/// Returns whether an Identity takes over credentials from the status of `source`: their certificate is of this cluster's key,
/// or they are those of an EKS cluster, which have none. Reports another one, and an API server that differs from that of the present credentials.
pub(super) fn take(
    issued: &AuthParams,
    present: Option<&AuthParams>,
    key: &ClusterKey,
    (source, identity): (&Ref, &Ref),
    plan: &mut Plan<WorkItem>,
) -> bool {
    let checked = match (&issued.signed_crt, &issued.aws_config) {
        (Some(certificate), _) => Certificate::check_key(&certificate.0, key.public_key())
            .map_err(|error| format!("signedCRT: {error}")),
        (None, Some(aws)) => eks::issued(aws)
            .check()
            .map_err(|error| format!("awsConfig: {error}")),
        (None, None) => return false,
    };
    if let Err(error) = checked {
        let message = format!("status.authParams.{error}: the present credentials stay in use");
        warn(plan, source.clone(), ("InvalidCredentials", message));
        return false;
    }
    if let Some(message) = present.and_then(|present| difference(present, issued)) {
        warn(plan, identity.clone(), ("APIServerChanged", message));
    }

    true
}

/// Returns how the API server of two credentials differs; `None` if it is the same.
fn difference(before: &AuthParams, after: &AuthParams) -> Option<String> {
    let text = |text: &Option<String>| shown(text.as_deref().unwrap_or_default());
    let ca = |ca: &Option<ByteString>| match ca.as_ref().filter(|ca| !ca.0.is_empty()) {
        Some(ca) => digest(&[&ca.0]).chars().take(FINGERPRINT_LEN).collect(),
        None => String::new(),
    };
    let fields = [
        (
            "apiServer",
            text(&before.api_server),
            text(&after.api_server),
        ),
        ("ca", ca(&before.ca), ca(&after.ca)),
        ("proxyURL", text(&before.proxy_url), text(&after.proxy_url)),
    ];
    let changed = fields.iter().filter(|(_, before, after)| before != after);
    let changed: Vec<_> = changed
        .map(|(field, before, after)| format!("{field} from `{before}` to `{after}`"))
        .collect();

    (!changed.is_empty()).then(|| {
        format!(
            "the provider has changed {}: make sure that this is its API server",
            changed.join(", ")
        )
    })
}

/// Returns a text of a provider without control characters, and cut.
fn shown(text: &str) -> String {
    text.escape_debug().take(SHOWN_MAX).collect()
}
