//! Watches on what the planner knows: one for each kind, narrowed to what concerns it.

use crate::kind::{Key, Kind};
use crate::metrics::Metrics;
use crate::world::{Listing, key_of};
use futures_util::StreamExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// What a watch tells.
pub(crate) enum Input {
    /// An object is there, in this state.
    Apply(Kind, Box<DynamicObject>),
    /// The object of this uid is gone.
    Delete(Kind, Key, Option<String>),
    /// All objects are told of anew.
    BeginList(Listing),
    /// All objects have been told of.
    EndList(Listing),
    /// The API server refuses it, or is not reached.
    Failed(Listing),
}

/// Objects per answer while listing: bounds the memory that a long list takes.
const PAGE_SIZE: u32 = 100;

/// Starts to watch what is on a list, as one of `tasks`.
pub(super) fn start(
    tasks: &mut JoinSet<()>,
    client: &Client,
    listing: Listing,
    liqo: &str,
    inputs: mpsc::Sender<Input>,
    metrics: Metrics,
) -> AbortHandle {
    let kind = listing.kind;
    let resource = kind.resource();
    let api: Api<DynamicObject> = if is_local(kind) {
        Api::namespaced_with(client.clone(), liqo, &resource)
    } else if listing.namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &listing.namespace, &resource)
    };
    let mut config = watcher::Config::default().page_size(PAGE_SIZE);
    config.label_selector = kind.selector();
    if let Some(name) = kind.name() {
        // A right on one name covers lists and watches with this selector only.
        config = config.fields(&format!("metadata.name={name}"));
    }

    tasks.spawn(async move {
        let mut events = watcher::watcher(api, config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            let input = match event {
                Ok(Event::Apply(mut object) | Event::InitApply(mut object)) => {
                    object.metadata.managed_fields = None;
                    Input::Apply(kind, Box::new(object))
                }
                Ok(Event::Delete(object)) => {
                    let key = key_of(&object.metadata);
                    Input::Delete(kind, key, object.metadata.uid)
                }
                Ok(Event::Init) => Input::BeginList(listing.clone()),
                Ok(Event::InitDone) => Input::EndList(listing.clone()),
                Err(error) => {
                    metrics.watch_failed(kind);
                    // Half of the text is the same thing in Rust's notation.
                    let text = error.to_string();
                    let text = text.split(" (").next().unwrap_or_default();
                    let namespace = &listing.namespace;
                    tracing::warn!(%kind, namespace, "a watch has failed and is tried again: {text}");
                    Input::Failed(listing.clone())
                }
            };
            if inputs.send(input).await.is_err() {
                return;
            }
        }
    })
}

/// Returns whether only objects of Liqo's namespace count.
fn is_local(kind: Kind) -> bool {
    matches!(kind, Kind::Pod | Kind::ConfigMap | Kind::GatewayKeys)
}
