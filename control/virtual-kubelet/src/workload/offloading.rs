//! The NamespaceOffloading of a namespace: what its annotations request for the pods.

use crate::pod::forge::Repatriation;
use crate::pod::status::cut;
use control_api::{NamespaceOffloading, annotations, duration};
use control_runtime::{Cache, Cluster, Key, Resource, Selector, WatchId};
use std::time::Duration;

/// Name of the only NamespaceOffloading of a namespace.
const NAME: &str = "offloading";

/// Shortest time after which a pod returns. A shorter one would create pods as fast as the provider refuses them.
const RETURN_AFTER_MIN: Duration = Duration::from_secs(10);

/// Longest text of an annotation that is published, in bytes.
const VALUE_LEN_MAX: usize = 64;

/// Returns the watch of the NamespaceOffloading of a namespace.
pub(super) fn watch(namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<NamespaceOffloading>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            name: Some(NAME.to_owned()),
            ..Selector::default()
        },
    }
}

/// Returns the repatriation of the pods of a namespace. Admission reports an invalid one, and ignores it.
pub(super) fn repatriation(cache: &Cache, namespace: &str) -> Option<Repatriation> {
    let text = annotation(cache, namespace, annotations::REPATRIATION)?.trim();
    if text == "never" {
        return Some(Repatriation::Never);
    }
    let duration = duration::parse(text, "10m").ok()?;
    // As admission: parts of seconds are rounded up.
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);

    i64::try_from(seconds).ok().map(Repatriation::After)
}

/// Returns the time after which a pod of a namespace returns that the provider does not place.
///
/// # Errors
///
/// Returns a message about a value that is no duration.
pub(super) fn return_after(cache: &Cache, namespace: &str) -> Result<Option<Duration>, String> {
    let Some(text) = annotation(cache, namespace, annotations::RETURN_UNSCHEDULABLE) else {
        return Ok(None);
    };
    // An empty text would be no time.
    let duration = Some(text.trim()).filter(|it| !it.is_empty());
    let duration = duration.and_then(|it| duration::parse(it, "10m").ok());
    let duration = duration.ok_or_else(|| {
        let shown = cut(text, VALUE_LEN_MAX);
        format!(
            "annotation {} of the NamespaceOffloading is `{shown}`, which is no duration: use one like 10m",
            annotations::RETURN_UNSCHEDULABLE
        )
    })?;

    Ok(Some(duration.max(RETURN_AFTER_MIN)))
}

fn annotation<'a>(cache: &'a Cache, namespace: &str, key: &str) -> Option<&'a str> {
    let offloading = cache.local::<NamespaceOffloading>(&Key::new(namespace, NAME))?;
    let annotations = offloading.metadata.annotations.as_ref()?;

    annotations.get(key).map(String::as_str)
}
